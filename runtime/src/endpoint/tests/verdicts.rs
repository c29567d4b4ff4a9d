//! Verdicts on sends not given by the rules here: held, and not kept.

use super::by_tag::{ByTag, HOLD, RELEASE};
use super::*;
use counterfoil_protocols::api::Rule;
use counterfoil_protocols::sender_based;

/// Rank 1 has the message from rank 2, sent after a held one from rank 0, and finds nothing from rank 0.
#[test]
fn a_send_that_is_held_waits_for_the_rule() {
    let job = ThreadJob::under(ByTag::default().rule(), settings(Tier::Volatile));
    let ran = job.run(|comm, _| {
        match comm.rank() {
            0 => {
                comm.send(1, HOLD, b"held")?;
                comm.send(1, 1, b"behind it")?;
                comm.send(2, 1, b"")?;
                comm.recv(Some(1), Some(1))?;
                comm.send(1, RELEASE, b"")?;
            }
            1 => {
                comm.recv(Some(2), Some(1))?;
                assert_eq!(comm.iprobe(Some(0), ANY_TAG)?, None);
                comm.send(0, 1, b"")?;
                let received: Vec<_> = (0..3).map(|_| comm.recv(Some(0), ANY_TAG)).collect::<Result<_, _>>()?;
                let tags: Vec<i32> = received.iter().map(|(status, _)| status.tag).collect();
                assert_eq!((tags, &received[0].1[..]), (vec![HOLD, 1, RELEASE], &b"held"[..]));
            }
            _ => {
                comm.recv(Some(0), Some(1))?;
                comm.send(1, 1, b"")?;
            }
        }
        Ok(End::Result(Vec::new()))
    });
    ran.unwrap();
}

/// No acknowledgement has an effect, so only a record released on transmission makes room.
#[test]
fn a_rule_that_keeps_nothing_sends_more_than_the_log_holds() {
    let settings = RankSettings { log_bytes_max: 1 << 20, on_full: OnFull::Fail, ..settings(Tier::Volatile) };
    let send_all = |rule: Rule| {
        ThreadJob::under(rule, settings.clone()).run(|comm, _| {
            for round in 0..1_000_u32 {
                match comm.rank() {
                    0 => {
                        comm.send(1, 1, &[round as u8; 4096])?;
                        comm.recv(Some(1), Some(2))?;
                    }
                    1 => {
                        let (_, bytes) = comm.recv(Some(0), Some(1))?;
                        assert_eq!((bytes[0], bytes.len()), (round as u8, 4096));
                        comm.send(0, 2, b"")?;
                    }
                    _ => {}
                }
            }
            Ok(End::Result(Vec::new()))
        })
    };
    assert!(matches!(send_all(sender_based::RULE), Err(Error::Append { to: 1, .. })));
    send_all(ByTag { keeps_nothing: true, ..ByTag::default() }.rule()).unwrap();
}
