//! Supervision of a rank, by the job's launcher or by all ranks together.

use std::collections::VecDeque;
use std::fmt;

use counterfoil_runtime::local::Welcome;
use counterfoil_runtime::transport::{Event, Report, TransportError};

/// Authority over a rank's start and end.
///
/// It does no I/O over MPI: the transport carries its notices, and doesn't repeat notices lost in a failure unless they
/// are sent again.
pub(super) trait Supervisor: fmt::Debug {
    /// Begins the next execution of `rank`.
    ///
    /// Returns `None` if the job has ended.
    ///
    /// # Errors
    /// [`TransportError`].
    fn join(&mut self, rank: u32) -> Result<Option<Welcome>, TransportError>;

    /// Handles its orders, and adds an event for each order to the endpoint.
    ///
    /// # Errors
    /// [`TransportError`].
    fn poll(&mut self, events: &mut VecDeque<Event>) -> Result<(), TransportError>;

    /// Handles a report from the endpoint.
    ///
    /// # Errors
    /// [`TransportError`].
    fn handle_report(&mut self, report: Report, events: &mut VecDeque<Event>) -> Result<(), TransportError>;

    /// Notes the beginning or the end of this process's wait for the others in a repair.
    fn report_repair(&mut self, waits: bool);

    /// Notes a rank's replacement by a process that runs the program again.
    fn handle_replaced(&mut self, rank: u32);

    /// Returns `true` if the ranks exchange notices about the job.
    fn has_notices(&self) -> bool;

    /// Handles a notice from another rank.
    ///
    /// # Errors
    /// [`TransportError`].
    fn handle_notice(&mut self, from: u32, notice: &[u8], events: &mut VecDeque<Event>) -> Result<(), TransportError>;

    /// Takes the next notice to send, and its receiver.
    fn poll_notice(&mut self) -> Option<(u32, Vec<u8>)>;

    /// Returns `true` if all ranks are done and are to vote to end the job.
    fn are_all_done(&self) -> bool;

    /// Returns `true` if a rank is done, as far as this process has to know.
    fn is_done(&self, rank: u32) -> bool;
}
