//! Table names in checkpoints: a name unreadable to a recovery is refused before anything is written.

use counterfoil::{CheckpointError, Contents, Epoch, Log, TableError};

use crate::spilled::with_dir;

fn named(names: &[&str]) -> Contents {
    let tables = names.iter().map(|name| ((*name).to_owned(), name.as_bytes().to_vec())).collect();
    Contents { application: b"program".to_vec(), tables }
}

#[test]
fn a_table_that_could_not_be_recovered_is_refused_before_anything_is_written() {
    with_dir(2, |options| {
        let mut log = Log::create(options.clone()).unwrap();
        let good = named(&["windows", &"n".repeat(255), "", "counterfoil/cuts "]);
        log.checkpoint(Epoch(2), good.clone()).unwrap();
        let before = log.stats().disk.unwrap();
        let refused = |log: &mut Log, names: &[&str]| match log.checkpoint(Epoch(3), named(names)) {
            Err(CheckpointError::Table(error)) => error,
            other => panic!("{names:?}: {other:?}"),
        };
        let reserved = refused(&mut log, &["windows", "counterfoil/cuts"]);
        assert!(matches!(&reserved, TableError::Reserved { name } if name == "counterfoil/cuts"), "{reserved}");
        let twice = refused(&mut log, &["windows", "orphans", "windows"]);
        assert!(matches!(&twice, TableError::Duplicate { name } if name == "windows"), "{twice}");
        for bytes in [256, 1000] {
            let long = refused(&mut log, &[&"ä".repeat(bytes / 2)]);
            assert!(matches!(&long, TableError::TooLong { bytes: found, .. } if *found == bytes), "{long}");
            assert!(long.to_string().len() < 200, "{long}");
        }
        assert_eq!(log.stats().disk.unwrap(), before);
        drop(log);
        let (mut log, recovered) = Log::recover(options).unwrap();
        let restored = recovered.checkpoint.unwrap();
        assert_eq!((restored.epoch, restored.contents), (Epoch(2), good));
        log.checkpoint(Epoch(3), named(&["windows"])).unwrap();
    });
}
