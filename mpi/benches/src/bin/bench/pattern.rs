//! Message patterns. `cargo xtask bench mpi` includes this file for its own options.

/// Message order between the two ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Pattern {
    /// There and back: `MPI_Send` and `MPI_Recv`
    PingPong,
    /// Both ways at once: `MPI_Sendrecv`
    Exchange,
    /// Both ways at once: `MPI_Irecv`, `MPI_Isend`, `MPI_Waitall`
    Immediate,
    /// One way, and one message back after the last has arrived: `MPI_Send` and `MPI_Recv`
    Stream,
}

impl Pattern {
    /// Returns the command line name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Pattern::PingPong => "ping-pong",
            Pattern::Exchange => "exchange",
            Pattern::Immediate => "immediate",
            Pattern::Stream => "stream",
        }
    }
}
