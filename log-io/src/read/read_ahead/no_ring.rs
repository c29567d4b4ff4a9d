//! The place of a ring in a build without the feature `io-uring`.

use std::sync::Arc;

use super::CompletedRead;
use super::plan::Plan;
use crate::Buffer;

/// There is none.
#[derive(Debug)]
pub(super) enum Ring {}

impl Ring {
    pub(super) fn begin(_: &Arc<Plan>, _: usize) -> Option<Ring> {
        None
    }

    pub(super) fn take(&mut self) -> CompletedRead {
        match *self {}
    }

    pub(super) fn recycle(&mut self, _: Buffer) {
        match *self {}
    }
}
