//! Supervision by the job's launcher, over a socket.

use std::collections::VecDeque;

use counterfoil_runtime::local::{LauncherConnection, Welcome};
use counterfoil_runtime::transport::{Event, Report, TransportError};

use super::supervisor::Supervisor;

impl Supervisor for LauncherConnection {
    fn join(&mut self, rank: u32) -> Result<Option<Welcome>, TransportError> {
        LauncherConnection::join(self, rank).map_err(|error| TransportError::Launcher(error.into()))
    }

    fn poll(&mut self, events: &mut VecDeque<Event>) -> Result<(), TransportError> {
        LauncherConnection::poll(self, events)
    }

    fn handle_report(&mut self, report: Report, _: &mut VecDeque<Event>) -> Result<(), TransportError> {
        self.report(report)
    }

    fn report_repair(&mut self, waits: bool) {
        // A lost launcher is noticed when its messages are read.
        let _ = self.report(Report::Repair { waits });
    }

    fn handle_replaced(&mut self, _: u32) {}

    fn has_notices(&self) -> bool {
        false
    }

    fn handle_notice(&mut self, _: u32, _: &[u8], _: &mut VecDeque<Event>) -> Result<(), TransportError> {
        Ok(())
    }

    fn poll_notice(&mut self) -> Option<(u32, Vec<u8>)> {
        None
    }

    fn are_all_done(&self) -> bool {
        false
    }

    fn is_done(&self, _: u32) -> bool {
        false
    }
}
