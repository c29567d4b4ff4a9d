//! Acknowledgements on their way, on a communicator of their own.

use crate::comm::{Comm, Sending};
use crate::error::MpiError;

/// The name of the communicator that acknowledgements travel on, for debuggers and others that look at MPI's calls: by it the
/// library under unmodified programs sees that a program logs by itself.
pub const ACKNOWLEDGEMENTS: &str = "counterfoil acknowledgements";
/// Of a batch of acknowledgements.
const BATCH: i32 = 1;
/// Of a request to send what there is: the asking rank's log is full.
const ASK: i32 = 2;

/// What came.
#[derive(Debug)]
pub(super) enum Came {
    /// Acknowledgements from this rank.
    Batch(u32, Vec<u8>),
    /// This rank wants to be acknowledged now.
    Ask(u32),
}

#[derive(Debug)]
pub(super) struct Control {
    comm: Comm,
    sending: Vec<Sending>,
    /// Messages to each rank, for the end.
    sent: Vec<u64>,
    received: Vec<u64>,
}

impl Control {
    /// All ranks do this together.
    pub(super) fn new(world: &Comm) -> Result<Control, MpiError> {
        let (comm, none) = (world.dup()?, vec![0; world.size()? as usize]);
        comm.set_name(ACKNOWLEDGEMENTS)?;
        Ok(Control { comm, sending: Vec::new(), sent: none.clone(), received: none })
    }

    pub(super) fn send_batch(&mut self, to: u32, batch: Vec<u8>) -> Result<(), MpiError> {
        self.send(to, BATCH, batch)
    }

    pub(super) fn ask(&mut self, of: u32) -> Result<(), MpiError> {
        self.send(of, ASK, Vec::new())
    }

    fn send(&mut self, to: u32, tag: i32, bytes: Vec<u8>) -> Result<(), MpiError> {
        let mut failed = Ok(());
        self.sending.retain_mut(|sending| match sending.test() {
            Ok(is_done) => !is_done,
            Err(error) => {
                failed = Err(error);
                true
            }
        });
        failed?;
        self.sending.push(self.comm.isend(bytes, to, tag)?);
        self.sent[to as usize] += 1;
        Ok(())
    }

    /// What has come, if something has.
    pub(super) fn poll(&mut self) -> Result<Option<Came>, MpiError> {
        let Some(matched) = self.comm.improbe(None, None)? else { return Ok(None) };
        let (from, tag) = (matched.source, matched.tag);
        let bytes = matched.receive()?;
        self.received[from as usize] += 1;
        Ok(Some(if tag == ASK { Came::Ask(from) } else { Came::Batch(from, bytes) }))
    }

    /// How many messages are still under way to this rank. All ranks do this together, and send nothing afterwards.
    pub(super) fn outstanding(&mut self) -> Result<u64, MpiError> {
        let sent: Vec<u8> = self.sent.iter().flat_map(|count| count.to_le_bytes()).collect();
        let mut expected = vec![0; sent.len()];
        self.comm.all_to_all(&sent, &mut expected)?;
        let expected = expected.chunks_exact(8).filter_map(|count| count.try_into().ok().map(u64::from_le_bytes));
        Ok(expected.zip(&self.received).map(|(expected, received)| expected.saturating_sub(*received)).sum())
    }

    /// Waits until everything has left.
    pub(super) fn finish(&mut self) -> Result<(), MpiError> {
        self.sending.drain(..).try_for_each(Sending::wait)
    }

    pub(super) fn comm(&self) -> &Comm {
        &self.comm
    }
}
