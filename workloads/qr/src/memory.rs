//! Memory for matrix values.

use std::ops::{Deref, DerefMut};

use counterfoil_log_core::{SharedArray, StateMemory, StateMemoryError};

/// Matrix values.
#[derive(Debug)]
pub enum Values {
    /// In the process's own memory.
    Own(Vec<f64>),
    /// In memory outliving the process.
    Shared(SharedArray<f64>),
}

impl Values {
    /// Moves the values to `memory`, if they aren't there.
    pub(crate) fn settle(&mut self, memory: &StateMemory) -> Result<(), StateMemoryError> {
        if !self.shared().is_some_and(|shared| memory.has(shared)) {
            *self = Values::Shared(memory.copy_of(self)?);
        }
        Ok(())
    }

    /// Returns the array in memory outliving the process.
    pub(crate) fn shared(&self) -> Option<&SharedArray<f64>> {
        match self {
            Values::Own(_) => None,
            Values::Shared(shared) => Some(shared),
        }
    }
}

impl Default for Values {
    fn default() -> Values {
        Values::Own(Vec::new())
    }
}

impl From<Vec<f64>> for Values {
    fn from(values: Vec<f64>) -> Values {
        Values::Own(values)
    }
}

impl Deref for Values {
    type Target = [f64];

    fn deref(&self) -> &[f64] {
        match self {
            Values::Own(own) => own,
            Values::Shared(shared) => shared,
        }
    }
}

impl DerefMut for Values {
    fn deref_mut(&mut self) -> &mut [f64] {
        match self {
            Values::Own(own) => own,
            Values::Shared(shared) => shared,
        }
    }
}

impl Clone for Values {
    fn clone(&self) -> Values {
        Values::Own(self.to_vec())
    }
}

impl PartialEq for Values {
    fn eq(&self, other: &Values) -> bool {
        **self == **other
    }
}
