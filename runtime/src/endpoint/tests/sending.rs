//! Sends, and the progress of a rank that only sends.

use counterfoil::Tier;

use super::super::sending::{POLL_EVERY_BYTES, POLL_EVERY_SENDS};
use super::settings;
use crate::communicator::Communicator;
use crate::local::testing::{End, ThreadJob};
use crate::settings::RankSettings;

#[test]
fn a_rank_that_only_sends_polls_after_some_messages_and_after_some_bytes() {
    let ran = ThreadJob::new(RankSettings { ranks: 2, ..settings(Tier::Volatile) }).run(|comm, _| {
        // Waits until both are connected; receives and barriers poll.
        comm.barrier()?;
        let messages = POLL_EVERY_SENDS + 1;
        if comm.rank() == 0 {
            comm.bytes_since_poll = 0;
            for _ in 1..POLL_EVERY_SENDS {
                let before = comm.bytes_since_poll;
                comm.send(1, 1, b"x")?;
                assert!(comm.bytes_since_poll > before);
            }
            comm.send(1, 1, b"x")?;
            assert_eq!(comm.bytes_since_poll, 0);
            comm.send(1, 1, &[0; POLL_EVERY_BYTES])?;
            assert_eq!(comm.bytes_since_poll, 0);
        } else {
            (0..messages).try_for_each(|_| comm.recv(Some(0), Some(1)).map(drop))?;
        }
        Ok(End::Result(Vec::new()))
    });
    ran.unwrap();
}
