//! Classes of calls.

use std::str::FromStr;

macro_rules! classes {
    ($($(#[$doc:meta])+ $name:ident = $text:literal,)+) => {
        /// Class of a call: the library treats the calls of a class alike.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Class {
            $($(#[$doc])+ $name,)+
        }

        impl Class {
            /// All classes.
            pub const ALL: &[Class] = &[$(Class::$name,)+];

            /// Returns the name in the table, which is also that of the function that handles the class.
            pub fn name(self) -> &'static str {
                match self {
                    $(Class::$name => $text,)+
                }
            }
        }
    };
}

classes! {
    /// Blocking send: returns when the buffer may be reused.
    Send = "send",
    /// Immediate send: MPI uses the buffer until the request is complete.
    SendImmediate = "send_immediate",
    /// Creates a persistent send.
    SendPersistent = "send_persistent",
    /// Creates a partitioned send.
    SendPartitioned = "send_partitioned",
    /// Blocking receive.
    Receive = "receive",
    /// Immediate receive.
    ReceiveImmediate = "receive_immediate",
    /// Creates a persistent receive.
    ReceivePersistent = "receive_persistent",
    /// Creates a partitioned receive.
    ReceivePartitioned = "receive_partitioned",
    /// Waits for a message without receiving it.
    Probe = "probe",
    /// Tests for a message without receiving it.
    ProbeImmediate = "probe_immediate",
    /// Waits for a message and matches it, so that no other receive can take it.
    Match = "match",
    /// Tests for a message and matches it, so that no other receive can take it.
    MatchImmediate = "match_immediate",
    /// Blocking receive of a matched message.
    ReceiveMatched = "receive_matched",
    /// Immediate receive of a matched message.
    ReceiveMatchedImmediate = "receive_matched_immediate",
    /// Sends one message and receives another.
    Exchange = "exchange",
    /// Sends one message and receives another into the same buffer.
    ExchangeReplace = "exchange_replace",
    /// Immediate form of an exchange.
    ExchangeImmediate = "exchange_immediate",
    /// Immediate form of an exchange in one buffer.
    ExchangeReplaceImmediate = "exchange_replace_immediate",
    /// Starts a persistent request.
    Start = "start",
    /// Starts several persistent requests.
    StartAll = "start_all",
    /// Waits for a request.
    Wait = "wait",
    /// Waits for one of several requests.
    WaitAny = "wait_any",
    /// Waits for all of several requests.
    WaitAll = "wait_all",
    /// Waits for at least one of several requests.
    WaitSome = "wait_some",
    /// Tests a request for completion.
    Test = "test",
    /// Tests for the completion of one of several requests.
    TestAny = "test_any",
    /// Tests for the completion of all of several requests.
    TestAll = "test_all",
    /// Tests which of several requests are complete.
    TestSome = "test_some",
    /// Tests a request for completion without freeing it.
    RequestStatus = "request_status",
    /// Frees a request; its operation continues.
    RequestFree = "request_free",
    /// Cancels the operation of a request, if possible.
    Cancel = "cancel",
    /// Synchronises all ranks.
    Barrier = "barrier",
    /// Collective operation from one rank to all.
    OneToAll = "one_to_all",
    /// Collective operation from all ranks to one.
    AllToOne = "all_to_one",
    /// Collective operation from all ranks to all.
    AllToAll = "all_to_all",
    /// Prefix reduction: from each rank to those with higher ranks.
    Scan = "scan",
    /// Collective operation between neighbours in a topology.
    Neighbours = "neighbours",
    /// Makes a communicator: all its members are in the call.
    CommMake = "comm_make",
    /// Makes a communicator from another one; it is valid when the request is complete.
    CommMakeImmediate = "comm_make_immediate",
    /// Names a communicator.
    CommName = "comm_name",
    /// Frees a communicator.
    CommDrop = "comm_drop",
    /// Makes an error handler.
    HandlerMake = "handler_make",
    /// Begins a generalized request, which the program completes.
    RequestGeneralized = "request_generalized",
    /// Frees a datatype.
    TypeDrop = "type_drop",
    /// Initialises MPI.
    Init = "init",
    /// Initialises MPI with a thread level.
    InitThread = "init_thread",
    /// Finalises MPI.
    Finalize = "finalize",
    /// Aborts the job.
    Abort = "abort",
    /// Controls tools such as this library (`MPI_Pcontrol`).
    Control = "control",
    /// Begins a session, which has a thread level of its own.
    SessionInit = "session_init",
    /// Starts a kind of communication that is not logged.
    NotLogged = "not_logged",
}

impl Class {
    /// Returns `true` for collective operations, which have three forms.
    pub fn is_collective(self) -> bool {
        use Class::{AllToAll, AllToOne, Barrier, Neighbours, OneToAll, Scan};
        matches!(self, Barrier | OneToAll | AllToOne | AllToAll | Scan | Neighbours)
    }
}

impl FromStr for Class {
    type Err = ();

    fn from_str(text: &str) -> Result<Class, ()> {
        Class::ALL.iter().copied().find(|class| class.name() == text).ok_or(())
    }
}
