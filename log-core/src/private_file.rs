//! Files only their user can open: compute nodes have several users, and all of them can write to `/dev/shm` and
//! `/tmp`.
//!
//! A private file has mode 0600 in a directory of mode 0700, and is created exclusively and never through a link. A
//! file owned by or open to another user is refused. A file's owner holds a lock on it, dropped by the kernel when the
//! process ends, for whatever reason: an available lock proves the owner dead.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags};

/// Error when creating or opening a private file or directory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PrivateFileError {
    /// The path can't be created or opened.
    #[error("{}: {source}", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// Another user owns it: its contents can't be trusted.
    #[error("{} belongs to user {owner}, not to user {user}: refused; choose another directory, or run it as that user", path.display())]
    ForeignOwner {
        /// The path.
        path: PathBuf,
        /// The owner's user id.
        owner: u32,
        /// This process's user id.
        user: u32,
    },
    /// Other users may open it.
    #[error("{} has mode {mode:04o}, which lets other users in: refused; expected {expected:04o}", path.display())]
    NotPrivate {
        /// The path.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
        /// The required permission bits.
        expected: u32,
    },
    /// The path is a link, a device or another kind of file than expected.
    #[error("{} is not a {expected}: refused", path.display())]
    WrongKind {
        /// The path.
        path: PathBuf,
        /// Expected kind of file.
        expected: &'static str,
    },
    /// A living process holds it.
    #[error("{} is in use by a living process", path.display())]
    OwnerAlive {
        /// The path.
        path: PathBuf,
    },
}

impl PrivateFileError {
    fn io(path: &Path) -> impl FnOnce(rustix::io::Errno) -> Self {
        move |errno| PrivateFileError::Io { path: path.to_owned(), source: errno.into() }
    }
}

/// Creates a directory of mode 0700, which must not exist.
///
/// # Errors
/// [`PrivateFileError::Io`], also if the name exists.
pub fn create_private_dir(path: &Path) -> Result<(), PrivateFileError> {
    rustix::fs::mkdir(path, Mode::RWXU).map_err(PrivateFileError::io(path))?;
    // The umask can only have cleared bits: a umask of 0700 would lock this process out.
    check_private_dir(path)
}

/// Checks that a directory is no link, is owned by this user and closed to all others.
///
/// # Errors
/// [`PrivateFileError`] names the broken rule.
pub fn check_private_dir(path: &Path) -> Result<(), PrivateFileError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| match errno {
        rustix::io::Errno::NOTDIR | rustix::io::Errno::LOOP => {
            PrivateFileError::WrongKind { path: path.to_owned(), expected: "directory" }
        }
        other => PrivateFileError::io(path)(other),
    })?;
    check_ours(path, &dir, 0o700)
}

/// Checks a directory for reading only, as [`check_private_dir`] does, except that root may read any user's.
///
/// # Errors
/// [`PrivateFileError`] names the broken rule.
pub fn check_readable_dir(path: &Path) -> Result<(), PrivateFileError> {
    match check_private_dir(path) {
        // The owner is checked before the mode, so the mode is still to be checked.
        Err(PrivateFileError::ForeignOwner { user: 0, .. }) => {
            let metadata = std::fs::symlink_metadata(path)
                .map_err(|source| PrivateFileError::Io { path: path.to_owned(), source })?;
            check_mode(path, metadata.mode() & 0o7777, 0o700)
        }
        other => other,
    }
}

/// Creates a file of mode 0600, which must not exist, and locks it.
///
/// # Errors
/// [`PrivateFileError::Io`], also if the name exists.
pub fn create_private_file(path: &Path) -> Result<File, PrivateFileError> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR).map_err(PrivateFileError::io(path))?;
    let file = File::from(file);
    lock(path, &file, FlockOperation::NonBlockingLockExclusive)?;
    Ok(file)
}

/// Creates a directory of mode 0700, or checks one created by another process: see [`check_private_dir`].
///
/// # Errors
/// [`PrivateFileError`].
pub fn join_private_dir(path: &Path) -> Result<(), PrivateFileError> {
    match rustix::fs::mkdir(path, Mode::RWXU) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => check_private_dir(path),
        Err(errno) => Err(PrivateFileError::io(path)(errno)),
    }
}

/// Opens a file of mode 0600, created if there is none, and shares its lock with other callers of this function.
///
/// [`open_private_file`] fails while one of them lives.
///
/// # Errors
/// [`PrivateFileError::OwnerAlive`] while a process holds the lock alone; other variants as for [`open_private_file`].
pub fn share_private_file(path: &Path) -> Result<File, PrivateFileError> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = open_checked(path, flags)?;
    lock(path, &file, FlockOperation::NonBlockingLockShared)?;
    Ok(file)
}

/// Opens and locks a file made by [`create_private_file`] in an ended process.
///
/// # Errors
/// [`PrivateFileError::OwnerAlive`] while a process holds it; other variants for a link, for another user's file, and
/// for one open to other users.
pub fn open_private_file(path: &Path) -> Result<File, PrivateFileError> {
    let file = open_checked(path, OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK)?;
    lock(path, &file, FlockOperation::NonBlockingLockExclusive)?;
    Ok(file)
}

/// Opens a file like [`open_private_file`], for reading only, together with other readers.
///
/// Until the last of them has closed it, it has an owner.
///
/// # Errors
/// See [`open_private_file`].
pub fn read_private_file(path: &Path) -> Result<File, PrivateFileError> {
    let file = open_checked(path, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK)?;
    lock(path, &file, FlockOperation::NonBlockingLockShared)?;
    Ok(file)
}

/// Opens a regular file private to this user.
fn open_checked(path: &Path, flags: OFlags) -> Result<File, PrivateFileError> {
    let file = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR).map_err(|errno| match errno {
        rustix::io::Errno::LOOP => PrivateFileError::WrongKind { path: path.to_owned(), expected: "regular file" },
        other => PrivateFileError::io(path)(other),
    })?;
    let stat = rustix::fs::fstat(&file).map_err(PrivateFileError::io(path))?;
    if rustix::fs::FileType::from_raw_mode(stat.st_mode) != rustix::fs::FileType::RegularFile {
        return Err(PrivateFileError::WrongKind { path: path.to_owned(), expected: "regular file" });
    }
    check_ours(path, &file, 0o600)?;
    Ok(File::from(file))
}

fn lock(path: &Path, file: &File, operation: FlockOperation) -> Result<(), PrivateFileError> {
    rustix::fs::flock(file, operation).map_err(|errno| match errno {
        rustix::io::Errno::WOULDBLOCK => PrivateFileError::OwnerAlive { path: path.to_owned() },
        other => PrivateFileError::io(path)(other),
    })
}

fn check_ours(path: &Path, fd: impl std::os::fd::AsFd, expected: u32) -> Result<(), PrivateFileError> {
    let stat = rustix::fs::fstat(fd).map_err(PrivateFileError::io(path))?;
    let user = rustix::process::geteuid().as_raw();
    if stat.st_uid != user {
        return Err(PrivateFileError::ForeignOwner { path: path.to_owned(), owner: stat.st_uid, user });
    }
    check_mode(path, stat.st_mode & 0o7777, expected)
}

fn check_mode(path: &Path, mode: u32, expected: u32) -> Result<(), PrivateFileError> {
    if mode != expected {
        return Err(PrivateFileError::NotPrivate { path: path.to_owned(), mode, expected });
    }
    Ok(())
}

#[cfg(not(any(counterfoil_loom, miri)))]
#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn private_dir() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ours");
        create_private_dir(&path).unwrap();
        (dir, path)
    }

    #[test]
    fn a_private_file_is_created_once_and_only_its_user_can_open_it() {
        let (_keep, dir) = private_dir();
        let path = dir.join("log");
        let file = create_private_file(&path).unwrap();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o7777, 0o600);
        assert_eq!(dir.metadata().unwrap().permissions().mode() & 0o7777, 0o700);
        assert!(matches!(create_private_file(&path), Err(PrivateFileError::Io { .. })));
        assert!(matches!(create_private_dir(&dir), Err(PrivateFileError::Io { .. })));
    }

    #[test]
    fn a_file_of_a_living_owner_is_refused_and_of_a_dead_one_is_not() {
        let (_keep, dir) = private_dir();
        let path = dir.join("log");
        let owner = create_private_file(&path).unwrap();
        assert!(matches!(open_private_file(&path), Err(PrivateFileError::OwnerAlive { .. })));
        drop(owner);
        open_private_file(&path).unwrap();
    }

    #[test]
    fn a_shared_file_has_an_owner_until_the_last_one_is_dead() {
        let (_keep, dir) = private_dir();
        join_private_dir(&dir).unwrap();
        let path = dir.join("lock");
        let (first, second) = (share_private_file(&path).unwrap(), share_private_file(&path).unwrap());
        assert_eq!(first.metadata().unwrap().permissions().mode() & 0o7777, 0o600);
        for owner in [first, second] {
            assert!(matches!(open_private_file(&path), Err(PrivateFileError::OwnerAlive { .. })));
            drop(owner);
        }
        let alone = open_private_file(&path).unwrap();
        assert!(matches!(share_private_file(&path), Err(PrivateFileError::OwnerAlive { .. })));
        drop(alone);
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert!(matches!(join_private_dir(&dir), Err(PrivateFileError::NotPrivate { mode: 0o755, .. })));
    }

    #[test]
    fn several_processes_read_a_file_and_none_writes_it_meanwhile() {
        let (_keep, dir) = private_dir();
        let path = dir.join("log");
        let owner = create_private_file(&path).unwrap();
        assert!(matches!(read_private_file(&path), Err(PrivateFileError::OwnerAlive { .. })));
        drop(owner);
        let readers = [read_private_file(&path).unwrap(), read_private_file(&path).unwrap()];
        assert!(matches!(open_private_file(&path), Err(PrivateFileError::OwnerAlive { .. })));
        drop(readers);
        open_private_file(&path).unwrap();
    }

    #[test]
    fn links_are_never_followed() {
        let (_keep, dir) = private_dir();
        let target = dir.join("target");
        drop(create_private_file(&target).unwrap());
        let link = dir.join("link");
        symlink(&target, &link).unwrap();
        assert!(matches!(open_private_file(&link), Err(PrivateFileError::WrongKind { .. })));
        assert!(matches!(create_private_file(&link), Err(PrivateFileError::Io { .. })));
        assert!(matches!(share_private_file(&link), Err(PrivateFileError::WrongKind { .. })));
        let dir_link = dir.join("dir-link");
        symlink(&dir, &dir_link).unwrap();
        assert!(matches!(check_private_dir(&dir_link), Err(PrivateFileError::WrongKind { .. })));
    }

    #[test]
    fn a_file_is_not_taken_for_a_directory() {
        let (_keep, dir) = private_dir();
        let path = dir.join("log");
        drop(create_private_file(&path).unwrap());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
        let refused = check_private_dir(&path);
        assert!(matches!(refused, Err(PrivateFileError::WrongKind { expected: "directory", .. })), "{refused:?}");
    }

    /// Otherwise a program started by the owner would hold its lock after the owner's death.
    #[test]
    fn programs_do_not_inherit_a_private_file() {
        let (_keep, dir) = private_dir();
        let path = dir.join("log");
        let check = |file: File| {
            let flags = rustix::io::fcntl_getfd(&file).unwrap();
            assert!(flags.contains(rustix::io::FdFlags::CLOEXEC), "{flags:?}");
        };
        check(create_private_file(&path).unwrap());
        check(open_private_file(&path).unwrap());
        check(share_private_file(&path).unwrap());
    }

    #[test]
    fn files_that_other_users_own_or_may_open_are_refused() {
        let (_keep, dir) = private_dir();
        let path = dir.join("log");
        drop(create_private_file(&path).unwrap());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(open_private_file(&path), Err(PrivateFileError::NotPrivate { mode: 0o644, .. })));
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert!(matches!(check_private_dir(&dir), Err(PrivateFileError::NotPrivate { mode: 0o755, .. })));
        // Only root can change a file's owner; other users can't test with a foreign file.
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        if std::os::unix::fs::chown(&path, Some(12345), None).is_ok() {
            assert!(matches!(open_private_file(&path), Err(PrivateFileError::ForeignOwner { owner: 12345, .. })));
            assert!(matches!(check_readable_dir(&dir), Err(PrivateFileError::NotPrivate { .. })));
            std::os::unix::fs::chown(&dir, Some(12345), None).unwrap();
            assert!(matches!(check_readable_dir(&dir), Err(PrivateFileError::NotPrivate { mode: 0o755, .. })));
            std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o700)).unwrap();
            check_readable_dir(&dir).unwrap();
            assert!(matches!(check_private_dir(&dir), Err(PrivateFileError::ForeignOwner { owner: 12345, .. })));
        }
    }
}
