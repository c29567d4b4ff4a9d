//! A call.

use crate::{Class, Kind};

/// An argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: Kind,
}

/// In which of its forms an operation is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// It is over when the call returns, or its class says otherwise.
    Plain,
    /// A collective operation that is over when its request has ended.
    Immediate,
    /// A collective operation that can be started again and again.
    Persistent,
}

/// A call of MPI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Its name without `MPI_`; of a call of an extension, with its `MPIX_`.
    pub name: String,
    /// The name in the table that it comes from: `Bcast` of `Ibcast` and of `Bcast_init_c`.
    pub base: String,
    /// What is done with it.
    pub class: Class,
    /// Its form.
    pub form: Form,
    /// Whether its counts are `MPI_Count`.
    pub is_large: bool,
    /// Its arguments.
    pub arguments: Vec<Argument>,
}

impl Call {
    /// Its name in MPI.
    pub fn symbol(&self) -> String {
        if self.is_extension() { self.name.clone() } else { format!("MPI_{}", self.name) }
    }

    /// Whether it belongs to no version of MPI, but to an extension of some: declared in `mpi-ext.h`.
    pub fn is_extension(&self) -> bool {
        self.name.starts_with("MPIX_")
    }

    /// The first argument of a kind.
    pub fn argument(&self, kind: Kind) -> Option<&Argument> {
        self.arguments.iter().find(|argument| argument.kind == kind)
    }

    /// The argument of a name.
    pub fn named(&self, name: &str) -> Option<&Argument> {
        self.arguments.iter().find(|argument| argument.name == name)
    }

    /// Its declaration in C.
    pub fn prototype(&self) -> String {
        let arguments: Vec<String> =
            self.arguments.iter().map(|argument| argument.kind.c(&argument.name, self.is_large)).collect();
        let arguments = if arguments.is_empty() { "void".to_owned() } else { arguments.join(", ") };
        format!("int {}({arguments})", self.symbol())
    }
}
