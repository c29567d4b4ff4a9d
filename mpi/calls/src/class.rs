//! What is done with a call.

use std::str::FromStr;

macro_rules! classes {
    ($($(#[$doc:meta])+ $name:ident = $text:literal,)+) => {
        /// The classes of calls: those of one class are treated alike.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Class {
            $($(#[$doc])+ $name,)+
        }

        impl Class {
            /// All of them.
            pub const ALL: &[Class] = &[$(Class::$name,)+];

            /// As in the table; the name of what is called for it.
            pub fn name(self) -> &'static str {
                match self {
                    $(Class::$name => $text,)+
                }
            }
        }
    };
}

classes! {
    /// A message leaves; the call returns when its memory may be used again.
    Send = "send",
    /// A message leaves; its memory is the MPI's until the request has ended.
    SendImmediate = "send_immediate",
    /// A message that can be started again and again.
    SendPersistent = "send_persistent",
    /// A message that is handed over in parts.
    SendPartitioned = "send_partitioned",
    /// A message is received.
    Receive = "receive",
    /// A message will have been received when the request has ended.
    ReceiveImmediate = "receive_immediate",
    /// A receive that can be started again and again.
    ReceivePersistent = "receive_persistent",
    /// A receive whose message comes in parts.
    ReceivePartitioned = "receive_partitioned",
    /// Waits for a message without taking it.
    Probe = "probe",
    /// Looks for a message without taking it.
    ProbeImmediate = "probe_immediate",
    /// Waits for a message and takes it out of everybody's reach.
    Match = "match",
    /// Looks for a message and takes it out of everybody's reach.
    MatchImmediate = "match_immediate",
    /// A matched message is received.
    ReceiveMatched = "receive_matched",
    /// A matched message will have been received when the request has ended.
    ReceiveMatchedImmediate = "receive_matched_immediate",
    /// One message leaves, another is received.
    Exchange = "exchange",
    /// The same, in one place of memory.
    ExchangeReplace = "exchange_replace",
    /// One message leaves, another will have been received when the request has ended.
    ExchangeImmediate = "exchange_immediate",
    /// The same, in one place of memory.
    ExchangeReplaceImmediate = "exchange_replace_immediate",
    /// A persistent request is started.
    Start = "start",
    /// Persistent requests are started.
    StartAll = "start_all",
    /// Waits for a request.
    Wait = "wait",
    /// Waits for one of several requests.
    WaitAny = "wait_any",
    /// Waits for several requests.
    WaitAll = "wait_all",
    /// Waits for at least one of several requests.
    WaitSome = "wait_some",
    /// Looks whether a request has ended.
    Test = "test",
    /// Looks whether one of several requests has ended.
    TestAny = "test_any",
    /// Looks whether several requests have ended.
    TestAll = "test_all",
    /// Looks which of several requests have ended.
    TestSome = "test_some",
    /// Looks whether a request has ended, and leaves it.
    RequestStatus = "request_status",
    /// A request is given up; its operation goes on.
    RequestFree = "request_free",
    /// A request's operation is called off, if it can be.
    Cancel = "cancel",
    /// Everybody waits for everybody.
    Barrier = "barrier",
    /// One rank's bytes reach all.
    OneToAll = "one_to_all",
    /// All ranks' bytes reach one.
    AllToOne = "all_to_one",
    /// All ranks' bytes reach all.
    AllToAll = "all_to_all",
    /// The bytes of a rank reach all those behind it.
    Scan = "scan",
    /// The bytes of a rank reach its neighbours in a topology.
    Neighbours = "neighbours",
    /// Makes a communicator from one; all ranks of that call it.
    CommMake = "comm_make",
    /// The same; it will be there when the request has ended.
    CommMakeImmediate = "comm_make_immediate",
    /// Makes a communicator from one; only the group calls it.
    CommMakeByGroup = "comm_make_by_group",
    /// Makes a communicator from nothing but a group.
    CommMakeFromGroup = "comm_make_from_group",
    /// Joins two communicators.
    CommMakeInter = "comm_make_inter",
    /// Names a communicator.
    CommName = "comm_name",
    /// Gives a communicator up.
    CommDrop = "comm_drop",
    /// Gives a datatype up.
    TypeDrop = "type_drop",
    /// MPI begins.
    Init = "init",
    /// MPI begins, with threads.
    InitThread = "init_thread",
    /// MPI ends.
    Finalize = "finalize",
    /// The job ends.
    Abort = "abort",
    /// The program speaks to tools such as this one.
    Control = "control",
    /// Something begins that is not logged.
    NotLogged = "not_logged",
}

impl Class {
    /// Whether it is a collective operation, with three forms.
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
