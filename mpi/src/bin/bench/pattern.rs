//! What can be asked for, here and of `cargo xtask bench mpi`, which has this file, too.

/// How messages go between the two ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Pattern {
    /// There and back: `MPI_Send` and `MPI_Recv`
    PingPong,
    /// Both ways at once: `MPI_Sendrecv`
    Exchange,
    /// Both ways at once: `MPI_Irecv`, `MPI_Isend`, `MPI_Waitall`
    Immediate,
    /// One way, and one message back when all are there: `MPI_Send` and `MPI_Recv`
    Stream,
}

impl Pattern {
    /// As an option has it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Pattern::PingPong => "ping-pong",
            Pattern::Exchange => "exchange",
            Pattern::Immediate => "immediate",
            Pattern::Stream => "stream",
        }
    }
}
