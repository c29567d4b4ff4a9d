//! The rank's beginning and end.
//!
//! # Safety
//! The unsafe functions take the program's own arguments to an MPI call still in progress. Pointers are valid as MPI
//! demands, until the call, or the request made by it, has ended.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::ffi::{c_char, c_int, c_void};
use std::fs;
use std::rc::Rc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use counterfoil::{OnFull, Tier};
use counterfoil_mpi::recovery::{Options, RankHandle, RecoveryError};
use counterfoil_mpi::{Threads, Universe};
use counterfoil_protocols::RULES;
use counterfoil_runtime::local::RecoveryTimes;
use counterfoil_runtime::{RankSettings, Tally};
use counterfoil_settings::host_name;
use counterfoil_settings::recover::{Aborted, Begun, Ended, Exited, RecoverSettings, Recovered, ReplayEnd};
use mpi_sys as ffi;
use rustc_hash::FxHashMap;

use crate::clocks::{self, Clocks};
use crate::comms::{Comm, Topology};
use crate::crash;
use crate::front::{self, Front, running};
use crate::handle::bits;
use crate::last_test::LastTest;
use crate::mark::Mark;
use crate::output;
use crate::replay::{Reason, Replay};

unsafe extern "C" {
    fn counterfoil_recover_flush();
}

/// Exit code of a job to be started again.
const LOST: c_int = 75;
/// Exit code of a process killed by a signal, less the signal: as in a shell.
const KILLED: c_int = 128;

/// Rank of this process, once it has called `MPI_Finalize`; negative before.
static ENDED: AtomicI64 = AtomicI64::new(-1);

/// Prints a message on standard error.
pub(crate) fn say(what: &str) {
    eprintln!("counterfoil: {what}");
}

/// Ends this process, without the program's exit functions.
pub(crate) fn exit_at_once(code: c_int) -> ! {
    // SAFETY: libc functions, without arguments that could be wrong. The program's buffered output is written first.
    unsafe {
        counterfoil_recover_flush();
        libc::_exit(code)
    }
}

/// Ends all processes of the job, because of `why`: starting it again would not help.
pub(crate) fn end_job(universe: &Rc<Universe>, code: c_int, why: &str) -> ! {
    stop_job(universe, code, why, Aborted::FILE)
}

/// Ends all processes of the job, because of `why`: it continues if it is started again.
pub(crate) fn lose_job(universe: &Rc<Universe>, why: &str) -> ! {
    stop_job(universe, LOST, why, Aborted::LOST_FILE)
}

fn stop_job(universe: &Rc<Universe>, code: c_int, why: &str, file: &str) -> ! {
    say(why);
    if let Ok(Some(settings)) = settings() {
        report(&settings, file, &Aborted { why: why.to_owned(), code, output: output::number() });
    }
    // SAFETY: a function from this library's C file.
    unsafe { counterfoil_recover_flush() };
    universe.world().abort(code);
    exit_at_once(code)
}

/// Returns milliseconds since 1970.
fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// `MPI_Init`.
///
/// # Safety
/// See the [module](self).
pub(crate) unsafe fn init(_: *mut c_int, _: *mut *mut *mut c_char) -> c_int {
    begin(Threads::Single);
    0
}

/// `MPI_Init_thread`.
///
/// Calls from several threads are made one at a time.
///
/// # Safety
/// See the [module](self).
pub(crate) unsafe fn init_thread(
    _: *mut c_int,
    _: *mut *mut *mut c_char,
    required: c_int,
    provided: *mut c_int,
) -> c_int {
    // SAFETY: shim constants, and the program's variable.
    unsafe {
        let (threads, level) = if required == ffi::RSMPI_THREAD_SINGLE {
            (Threads::Single, ffi::RSMPI_THREAD_SINGLE)
        } else if required == ffi::RSMPI_THREAD_FUNNELED {
            (Threads::Funneled, ffi::RSMPI_THREAD_FUNNELED)
        } else {
            (Threads::Serialized, ffi::RSMPI_THREAD_SERIALIZED)
        };
        begin(threads);
        *provided = level;
        if required == ffi::RSMPI_THREAD_MULTIPLE && running().is_some_and(|front| front.rank() == 0) {
            say(
                "MPI_THREAD_MULTIPLE is not available to a program that recovers: MPI_Init_thread provides MPI_THREAD_SERIALIZED",
            );
        }
    }
    0
}

/// Returns the settings from `counterfoil run`; by default, a job with all processes.
fn settings() -> Result<Option<RecoverSettings>, String> {
    RecoverSettings::from_env().map_err(|error| error.to_string())
}

/// Returns `true` if checkpoints are taken: a job that keeps its logs needs them from their beginning.
fn takes_checkpoints(settings: &RecoverSettings) -> bool {
    settings.checkpoints && !settings.keeps_logs && settings.replay.is_none()
}

/// Returns the job's options.
fn options(settings: Option<&RecoverSettings>, started: u32) -> Result<Options, String> {
    let mut options = Options::new(settings.map_or(started, |settings| settings.ranks));
    let Some(settings) = settings else { return Ok(options) };
    let rule = RULES.iter().find(|rule| rule.name == settings.rule);
    options.settings.rule = *rule.ok_or_else(|| format!("there is no rule {}", settings.rule))?;
    options.settings.tier = settings.tier;
    options.settings.log_bytes_max = settings.log_bytes;
    options.settings.local_log_bytes_max = settings.local_log_bytes;
    options.settings.disk_bytes_max = settings.disk_bytes;
    if settings.tier != Tier::NodeLocal && !takes_checkpoints(settings) {
        // Nothing is released, so a full log stays full.
        options.settings.on_full = OnFull::Fail;
    }
    options.settings.tolerates_divergence = settings.tolerates_divergence;
    options.name = settings.job.clone();
    options.keeps_logs = settings.keeps_logs;
    options.keeps_prologue = takes_checkpoints(settings);
    if let Some(root) = &settings.shm_root {
        options.shm_root.clone_from(root);
    }
    if let Some(root) = &settings.checkpoint_root {
        options.checkpoint_root.clone_from(root);
    }
    Ok(options)
}

/// Makes this process a rank.
///
/// Returns on a rank only.
fn begin(threads: Threads) {
    if running().is_some() || front::is_over() {
        say("MPI was initialised before");
        exit_at_once(1);
    }
    clocks::note_thread(matches!(threads, Threads::Serialized));
    crash::note_handlers();
    if let Ok(Some(settings)) = settings() {
        output::note_init(&settings);
    }
    let universe = match Universe::init_unseen(threads) {
        Ok(universe) => universe,
        Err(error) => {
            say(&format!("MPI_Init: {error}"));
            exit_at_once(1);
        }
    };
    let fail = |why: String| -> ! { end_job(&universe, 1, &format!("MPI_Init: {why}")) };
    let settings = settings().unwrap_or_else(|error| fail(error));
    if let Some(settings) = settings.as_ref().filter(|settings| !settings.report_dir.is_dir()) {
        fail(format!(
            "host {} has no directory {}: ranks on several hosts need --shared-dir, a directory that all hosts share",
            host_name(),
            settings.report_dir.display()
        ));
    }
    let started = universe.world().size().unwrap_or(1);
    let options = options(settings.as_ref(), started).unwrap_or_else(|error| fail(error));
    if let Some(replay) = settings.as_ref().and_then(Replay::new) {
        begin_replay(&universe, &options, settings.as_ref(), replay);
        return;
    }
    match RankHandle::begin(&universe, &options) {
        Ok(Some(handle)) => match make(settings.as_ref(), None, handle) {
            Ok(front) => front::begin(front),
            Err(why) => fail(why),
        },
        // An unneeded spare.
        Ok(None) => {
            drop(universe);
            exit_at_once(0);
        }
        Err(error) if error.is_ended_elsewhere() => exit_at_once(1),
        Err(error) if error.needs_new_start() => lose_job(&universe, &format!("MPI_Init: {error}")),
        Err(error) => fail(error.to_string()),
    }
    // SAFETY: a function without preconditions.
    unsafe { output::on_exit(handle_exit, std::ptr::null_mut()) };
}

/// Makes this process a replayed rank.
fn begin_replay(universe: &Rc<Universe>, options: &Options, settings: Option<&RecoverSettings>, replay: Replay) {
    match RankHandle::replay(universe, &replay.options(&options.settings)).map_err(|error| error.to_string()) {
        Ok(handle) => match make(settings, Some(replay.clone()), handle) {
            Ok(front) => front::begin(front),
            Err(why) => replay.fail(why),
        },
        Err(why) => replay.fail(why),
    }
    // SAFETY: a function without preconditions.
    unsafe { output::on_exit(handle_exit, std::ptr::null_mut()) };
}

/// Makes a rank's state.
fn make(settings: Option<&RecoverSettings>, replay: Option<Replay>, handle: RankHandle) -> Result<Front, String> {
    let process = Rc::clone(handle.rank());
    let (rank, failed) = (process.rank(), |error: counterfoil_mpi::error::OperationError| error.to_string());
    let world = process.world().map_err(failed)?;
    let itself = process.itself();
    let incarnation = process.incarnation().map_err(failed)?;
    // SAFETY: shim constants, communicators with this process alone, and pointers to local variables. Errors are
    // checked; those in the program's own calls are handed to its handlers, initially MPI's default ones.
    let (private, world_attributes, world_handle, self_handle) = unsafe {
        let (mut private, mut attributes) = (ffi::RSMPI_COMM_NULL, ffi::RSMPI_COMM_NULL);
        let code = [
            ffi::PMPI_Comm_dup(ffi::RSMPI_COMM_SELF, &raw mut private),
            ffi::PMPI_Comm_dup(ffi::RSMPI_COMM_SELF, &raw mut attributes),
            ffi::PMPI_Comm_set_errhandler(ffi::RSMPI_COMM_WORLD, ffi::RSMPI_ERRORS_ARE_FATAL),
            ffi::PMPI_Comm_set_errhandler(ffi::RSMPI_COMM_SELF, ffi::RSMPI_ERRORS_ARE_FATAL),
        ];
        if let Some(code) = code.into_iter().find(|code| *code != 0) {
            return Err(crate::failure::text_of(code));
        }
        (private, attributes, ffi::RSMPI_COMM_WORLD, ffi::RSMPI_COMM_SELF)
    };
    let of = |handle, context| Rc::new(Comm { handle, context, local: None, topology: Topology::None });
    let (world, itself) = (of(world_handle, world), of(self_handle, itself));
    let mut comms = FxHashMap::default();
    comms.insert(bits(world_handle), Rc::clone(&world));
    comms.insert(bits(self_handle), itself);
    let mut kill = None;
    let of_job = settings.filter(|_| replay.is_none());
    if let Some(settings) = of_job {
        if let Some(signal) = crash::fatal_signal(settings, rank) {
            let why =
                format!("rank {rank} has died twice by its own fault, signal {signal}, and is not replaced again");
            end_job(process.universe(), KILLED + signal, &why);
        }
        crash::watch(settings, rank);
        if !settings.kills.is_empty() {
            kill = settings.kill_of(rank, Begun::of_rank(&settings.report_dir, rank).len());
        }
        let begun = Begun {
            rank,
            incarnation,
            host: host_name(),
            pid: std::process::id(),
            at_ms: now_ms(),
            output: output::number(),
        };
        report(settings, &Begun::file(rank, incarnation), &begun);
    }
    let mark = match settings.filter(|settings| settings.keeps_logs) {
        Some(settings) => {
            let mark = Mark::open(&settings.report_dir, rank);
            Some(mark.map_err(|error| format!("cannot count calls in {}: {error}", settings.report_dir.display()))?)
        }
        None => None,
    };
    let stops_in = replay.as_ref().map_or(kill, Replay::stops_in);
    Ok(Front {
        process,
        comms: RefCell::new(comms),
        world,
        requests: RefCell::default(),
        last_test: LastTest::default(),
        matched: RefCell::default(),
        groups: RefCell::default(),
        used_operations: Rc::default(),
        private,
        world_attributes,
        clocks: Clocks::new(
            settings.map_or(RankSettings::new(1).local_log_bytes_max, |settings| settings.local_log_bytes),
        ),
        calls: Cell::new(0),
        last: Cell::new("MPI_Init"),
        stops_in: Cell::new(stops_in),
        catches_up: Cell::new((incarnation > 0).then_some(incarnation)),
        looks_for_divergence: Cell::new(
            of_job.is_some_and(|settings| settings.tolerates_divergence && (incarnation > 0 || settings.start > 0)),
        ),
        mark,
        takes_checkpoints: settings.is_some_and(takes_checkpoints),
        set_up: RefCell::default(),
        replay,
        handle: Cell::new(Some(handle)),
    })
}

/// Writes a file for `counterfoil run`, whose report lacks any unwritten file.
pub(crate) fn report(settings: &RecoverSettings, name: &str, what: &impl serde::Serialize) {
    let Ok(text) = serde_json::to_vec(what) else { return };
    let (path, new) = (settings.report_dir.join(name), settings.report_dir.join(format!("{name}.new")));
    let written = fs::write(&new, text).and_then(|()| fs::rename(&new, &path));
    if let Err(error) = written {
        say(&format!("cannot write {}: {error}", path.display()));
    }
}

/// `MPI_Finalize`.
///
/// # Safety
/// See the [module](self).
pub(crate) unsafe fn finalize() -> c_int {
    if let Some(front) = running() {
        front.count_call("MPI_Finalize");
        if output::has_lost_output() {
            front.end_job(1, "standard output could not be written");
        }
        if front.process.repeats_prologue() {
            front.end_job(1, "it has a checkpoint, and has not called counterfoil_restarted before MPI_Finalize");
        }
    }
    let Some(mut front) = front::take() else {
        say("MPI_Finalize was called before MPI_Init or twice");
        exit_at_once(1);
    };
    let (universe, rank, calls) = (Rc::clone(front.process.universe()), front.rank(), front.calls.get());
    let (tally, _) = front.process.counts();
    // SAFETY: communicators made by this process, freed once.
    unsafe {
        for comm in front.comms.get_mut().drain().map(|(_, comm)| comm.handle) {
            if comm != ffi::RSMPI_COMM_WORLD && comm != ffi::RSMPI_COMM_SELF {
                let mut comm = comm;
                ffi::PMPI_Comm_free(&raw mut comm);
            }
        }
        ffi::PMPI_Comm_free(&raw mut front.world_attributes);
        ffi::PMPI_Comm_free(&raw mut front.private);
    }
    let Some(handle) = front.handle.take() else { return 0 };
    let replay = front.replay.take();
    drop(front);
    let ended = handle.end(Ok::<(), Infallible>(()));
    if let Some(replay) = replay {
        let failed = ended.as_ref().err().map(|error| {
            let reason = if let RecoveryError::Runtime(error) = error { Reason::of(error) } else { None };
            (reason.map_or(ReplayEnd::Failed, |reason| replay.end_for(reason, calls)), error.to_string())
        });
        replay.finish(calls, &tally, failed);
        return 0;
    }
    if let Err(error) = &ended {
        if error.is_ended_elsewhere() {
            exit_at_once(1);
        }
        let why = format!("rank {rank}: {error}");
        if error.needs_new_start() {
            lose_job(&universe, &why);
        }
        end_job(&universe, 1, &why);
    }
    if let Ok(Some(settings)) = settings() {
        report(&settings, &Ended::file(rank), &ended_of(rank, calls, &tally));
    }
    ENDED.store(i64::from(rank), Ordering::Relaxed);
    drop(universe);
    0
}

/// Reports the steps of this process's replacement of another one.
pub(crate) fn report_recovery(rank: u32, incarnation: u32, times: &RecoveryTimes) {
    let ms = |time: Option<Duration>| Some(time?.as_secs_f64() * 1e3);
    let RecoveryTimes { noticed, repair, start, replay, catch_up, .. } = *times;
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let noticed_at = since_1970.saturating_sub(noticed.map(|noticed| noticed.elapsed()).unwrap_or_default());
    let recovered = Recovered {
        noticed_at_us: u64::try_from(noticed_at.as_micros()).unwrap_or(u64::MAX),
        repair: ms(repair),
        start: ms(start),
        replay: ms(replay),
        catch_up: ms(catch_up),
    };
    if let Ok(Some(settings)) = settings() {
        report(&settings, &Recovered::file(rank, incarnation), &recovered);
    }
}

fn ended_of(rank: u32, calls: u64, tally: &Tally) -> Ended {
    Ended {
        rank,
        calls,
        at_ms: now_ms(),
        messages_logged: tally.messages_logged,
        bytes_logged: tally.bytes_logged,
        outcomes: tally.choices_logged,
        sends_diverged: tally.sends_diverged,
    }
}

/// `MPI_Abort`.
///
/// # Safety
/// See the [module](self).
pub(crate) unsafe fn abort(_: ffi::MPI_Comm, code: c_int) -> c_int {
    match running() {
        Some(front) => front.end_job(code, &format!("MPI_Abort was called with code {code}")),
        None => exit_at_once(code),
    }
}

/// Handles the exit of a process that was a rank.
///
/// One that has not called MPI_Finalize ends the job: a replacement would do the same.
extern "C" fn handle_exit(code: c_int, _: *mut c_void) {
    // A child forked by the rank has the same function.
    if clocks::is_child() {
        return;
    }
    if let Ok(rank) = u32::try_from(ENDED.load(Ordering::Relaxed))
        && let Ok(Some(settings)) = settings()
    {
        report(&settings, &Exited::file(rank), &Exited { code });
    }
    if let Some(front) = running() {
        front.end_job(if code == 0 { 1 } else { code }, &format!("it called exit({code}) without MPI_Finalize"));
    }
}
