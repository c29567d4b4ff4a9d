//! Messages between ranks, and between them and the coordinator.

use serde::{Deserialize, Serialize};

use crate::encoding;

/// Notice tag between ranks.
pub(super) const NOTICE: i32 = 1;

/// Statement by a rank or the coordinator about a generation of the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Message {
    /// One of its ranks is lost.
    Failed { generation: u32 },
    /// From a rank: its state is rebuilt.
    Rebuilt { generation: u32 },
}

impl Message {
    pub(super) fn encode(self) -> Vec<u8> {
        encoding::encode(&self)
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Message> {
        encoding::decode(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_read_back_and_nothing_else_is() {
        for generation in [0, 1, u32::MAX] {
            for message in [Message::Failed { generation }, Message::Rebuilt { generation }] {
                let bytes = message.encode();
                assert_eq!(Message::decode(&bytes), Some(message));
                assert_eq!(Message::decode(&bytes[..bytes.len() - 1]), None);
                assert_eq!(Message::decode(&[&bytes[..], &[0]].concat()), None);
            }
        }
        assert_eq!(Message::decode(&[2, 0]), None);
    }
}
