//! Rules that add to another.

/// Forwards [`Protocol`](crate::api::Protocol) methods to a field, for a rule that adds to another:
/// `forward_protocol!(core: epoch, hello);` in its `impl` block.
#[macro_export]
macro_rules! forward_protocol {
    ($core:ident: $($method:ident),* $(,)?) => { $($crate::forward_protocol!(@$method $core);)* };
    (@epoch $core:ident) => {
        fn epoch(&self) -> $crate::nouns::Epoch {
            self.$core.epoch()
        }
    };
    (@incarnation $core:ident) => {
        fn incarnation(&self) -> $crate::nouns::Incarnation {
            self.$core.incarnation()
        }
    };
    (@handle_send $core:ident) => {
        fn handle_send(&mut self, envelope: &$crate::nouns::Envelope) -> Result<$crate::api::Outgoing, $crate::api::ProtocolError> {
            self.$core.handle_send(envelope)
        }
    };
    (@handle_transmit $core:ident) => {
        fn handle_transmit(&mut self, header: &mut $crate::nouns::WireHeader) -> Result<(), $crate::api::ProtocolError> {
            self.$core.handle_transmit(header)
        }
    };
    (@handle_message $core:ident) => {
        fn handle_message(&mut self, header: &$crate::nouns::WireHeader) -> Result<$crate::api::Incoming, $crate::api::ProtocolError> {
            self.$core.handle_message(header)
        }
    };
    (@handle_control $core:ident) => {
        fn handle_control(
            &mut self,
            from: $crate::api::Party,
            header: &$crate::nouns::WireHeader,
            body: &[u8],
        ) -> Result<(), $crate::api::ProtocolError> {
            self.$core.handle_control(from, header, body)
        }
    };
    (@next_choice $core:ident) => {
        fn next_choice(&mut self) -> $crate::api::NextChoice {
            self.$core.next_choice()
        }
    };
    (@handle_choice $core:ident) => {
        fn handle_choice(
            &mut self,
            choice: $crate::nouns::Determinant,
        ) -> Result<Option<$crate::api::ChoiceRecord>, $crate::api::ChoiceError> {
            self.$core.handle_choice(choice)
        }
    };
    (@handle_recovered_choice $core:ident) => {
        fn handle_recovered_choice(&mut self, record: &[u8]) -> Result<(), $crate::api::ChoiceError> {
            self.$core.handle_recovered_choice(record)
        }
    };
    (@wants_checkpoint $core:ident) => {
        fn wants_checkpoint(&mut self) -> bool {
            self.$core.wants_checkpoint()
        }
    };
    (@handle_checkpoint $core:ident) => {
        fn handle_checkpoint(&mut self) -> Result<$crate::api::Snapshot, $crate::api::ProtocolError> {
            self.$core.handle_checkpoint()
        }
    };
    (@handle_checkpoint_durable $core:ident) => {
        fn handle_checkpoint_durable(&mut self, epoch: $crate::nouns::Epoch) -> Result<(), $crate::api::ProtocolError> {
            self.$core.handle_checkpoint_durable(epoch)
        }
    };
    (@restore $core:ident) => {
        fn restore(&mut self, tables: &[u8], oldest: $crate::nouns::Epoch) -> Result<(), $crate::api::RestoreError> {
            self.$core.restore(tables, oldest)
        }
    };
    (@handle_peer_lost $core:ident) => {
        fn handle_peer_lost(&mut self, peer: $crate::nouns::Rank) -> Result<(), $crate::api::ProtocolError> {
            self.$core.handle_peer_lost(peer)
        }
    };
    (@hello $core:ident) => {
        fn hello(&self, peer: $crate::nouns::Rank) -> Result<$crate::api::Hello, $crate::api::ProtocolError> {
            self.$core.hello(peer)
        }
    };
    (@handle_hello $core:ident) => {
        fn handle_hello(
            &mut self,
            peer: $crate::nouns::Rank,
            hello: &$crate::api::Hello,
        ) -> Result<(), $crate::api::ProtocolError> {
            self.$core.handle_hello(peer, hello)
        }
    };
    (@poll_effect $core:ident) => {
        fn poll_effect(&mut self) -> Option<$crate::api::Effect> {
            self.$core.poll_effect()
        }
    };
}
