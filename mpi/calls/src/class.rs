//! Classes of calls: their names in the table, and their functions' kinds of arguments.

use std::str::FromStr;

use crate::Kind;

macro_rules! classes {
    ($($(#[$doc:meta])+ $name:ident = $text:literal [$($kind:ident),*],)+) => {
        /// Class of calls, all handled by [one function](crate::Call::wrapper) of the library.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Class {
            $($(#[$doc])+ $name,)+
        }

        impl Class {
            /// All classes.
            pub const ALL: &[Class] = &[$(Class::$name,)+];

            /// Returns the name in the table.
            pub fn name(self) -> &'static str {
                match self {
                    $(Class::$name => $text,)+
                }
            }

            /// Returns the kinds of arguments passed unchanged to the class's function.
            ///
            /// A message's destination, source, address, count, datatype, tag and communicator are in a message
            /// description, and a collective operation's in an operation description.
            pub fn takes(self) -> &'static [Kind] {
                match self {
                    $(Class::$name => &[$(Kind::$kind),*],)+
                }
            }
        }
    };
}

classes! {
    /// Blocking send: returns when the buffer may be reused.
    Send = "send" [],
    /// Immediate send: MPI uses the buffer until the request is complete.
    SendImmediate = "send_immediate" [RequestOut],
    /// Creates a persistent send.
    SendPersistent = "send_persistent" [RequestOut],
    /// Creates a partitioned send.
    SendPartitioned = "send_partitioned" [Int, RequestOut],
    /// Blocking receive.
    Receive = "receive" [Status],
    /// Immediate receive.
    ReceiveImmediate = "receive_immediate" [RequestOut],
    /// Creates a persistent receive.
    ReceivePersistent = "receive_persistent" [RequestOut],
    /// Creates a partitioned receive.
    ReceivePartitioned = "receive_partitioned" [Int, RequestOut],
    /// Waits for a message without receiving it.
    Probe = "probe" [Status],
    /// Tests for a message without receiving it.
    ProbeImmediate = "probe_immediate" [Flag, Status],
    /// Waits for a message and matches it, so that no other receive can take it.
    Match = "match_message" [Message, Status],
    /// Tests for a message and matches it, so that no other receive can take it.
    MatchImmediate = "match_immediate" [Flag, Message, Status],
    /// Blocking receive of a matched message.
    ReceiveMatched = "receive_matched" [Message, Status],
    /// Immediate receive of a matched message.
    ReceiveMatchedImmediate = "receive_matched_immediate" [Message, RequestOut],
    /// Sends one message and receives another.
    Exchange = "exchange" [Status],
    /// Sends one message and receives another into the same buffer.
    ExchangeReplace = "exchange_replace" [Status],
    /// Immediate exchange.
    ExchangeImmediate = "exchange_immediate" [RequestOut],
    /// Immediate exchange in one buffer.
    ExchangeReplaceImmediate = "exchange_replace_immediate" [RequestOut],
    /// Starts a persistent request.
    Start = "start" [Request],
    /// Starts several persistent requests.
    StartAll = "start_all" [Int, Requests],
    /// Waits for a request.
    Wait = "wait" [Request, Status],
    /// Waits for one request in an array.
    WaitAny = "wait_any" [Int, Requests, IndexOut, Status],
    /// Waits for all requests in an array.
    WaitAll = "wait_all" [Int, Requests, Statuses],
    /// Waits for at least one request in an array.
    WaitSome = "wait_some" [Int, Requests, IntOut, IndicesOut, Statuses],
    /// Tests a request for completion.
    Test = "test" [Request, Flag, Status],
    /// Tests the requests in an array for one completion.
    TestAny = "test_any" [Int, Requests, IndexOut, Flag, Status],
    /// Tests all requests in an array for completion.
    TestAll = "test_all" [Int, Requests, Flag, Statuses],
    /// Tests the requests in an array for any completions.
    TestSome = "test_some" [Int, Requests, IntOut, IndicesOut, Statuses],
    /// Tests a request for completion without freeing it.
    RequestStatus = "request_status" [RequestIn, Flag, Status],
    /// Frees a request; its operation continues.
    RequestFree = "request_free" [Request],
    /// Cancels a request's operation, if possible.
    Cancel = "cancel" [Request],
    /// Synchronises all ranks.
    Barrier = "barrier" [RequestOut],
    /// Collective operation from one rank to all.
    OneToAll = "one_to_all" [RequestOut],
    /// Collective operation from all ranks to one.
    AllToOne = "all_to_one" [RequestOut],
    /// Collective operation from all ranks to all.
    AllToAll = "all_to_all" [RequestOut],
    /// Prefix reduction: from each rank to those with higher ranks.
    Scan = "scan" [RequestOut],
    /// Collective operation between neighbours in a topology.
    Neighbours = "neighbours" [RequestOut],
    /// Makes a communicator: all its members are in the call.
    CommMake = "comm_make" [CommOut],
    /// Makes a communicator from the program's group, a subset of another communicator's members.
    CommCreate = "comm_create" [Comm, CommOut],
    /// Makes a communicator from another one; it is valid when the request is complete.
    CommMakeImmediate = "comm_make_immediate" [Comm, CommOut, RequestOut],
    /// Names a communicator.
    CommName = "comm_name" [Comm, String],
    /// Revokes a communicator: from then on nothing is sent or received on it.
    CommRevoke = "comm_revoke" [Comm],
    /// Frees a communicator.
    CommDrop = "comm_drop" [CommOut],
    /// Makes an error handler.
    HandlerMake = "handler_make" [Handler, ErrhandlerOut],
    /// Begins a generalized request, which the program completes.
    RequestGeneralized = "request_generalized" [RequestOut],
    /// Frees a datatype.
    TypeDrop = "type_drop" [TypeOut],
    /// Initialises MPI.
    Init = "init" [],
    /// Initialises MPI with a thread level.
    InitThread = "init_thread" [IntOut],
    /// Finalises MPI.
    Finalize = "finalize" [],
    /// Aborts the job.
    Abort = "abort" [Comm, Int],
    /// Controls tools such as this library (`MPI_Pcontrol`).
    Control = "control" [Int],
    /// Begins a session, which has a thread level of its own.
    SessionInit = "session_init" [SessionOut],
    /// Starts unlogged communication.
    NotLogged = "not_logged" [],
    /// Asks for information that a recovering rank provides by itself.
    ///
    /// Not wrapped by the logging library.
    Answered = "answered" [],
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
