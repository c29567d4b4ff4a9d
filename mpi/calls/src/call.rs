//! Calls and their arguments.

use crate::{Class, Kind};

/// Argument of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument {
    /// Argument name.
    pub name: String,
    /// Argument meaning and type.
    pub kind: Kind,
}

/// Form of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// The form in the table's line; its class says when the operation is complete.
    Plain,
    /// Collective operation that is complete when its request is.
    Immediate,
    /// Collective operation with a persistent request, which can be started repeatedly.
    Persistent,
}

/// An MPI call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Name without `MPI_`; the name of an extension's call includes `MPIX_`.
    pub name: String,
    /// Name in the table, common to all forms: `Bcast` for `Ibcast` and `Bcast_init_c`.
    pub base: String,
    /// Class, which decides how the library treats the call.
    pub class: Class,
    /// Form of the call.
    pub form: Form,
    /// True for the large-count form, whose counts are `MPI_Count`.
    pub is_large: bool,
    /// Arguments in their order.
    pub arguments: Vec<Argument>,
}

impl Call {
    /// Returns the C function's name.
    pub fn symbol(&self) -> String {
        if self.is_extension() { self.name.clone() } else { format!("MPI_{}", self.name) }
    }

    /// Returns `true` if the call is an extension, declared in `mpi-ext.h`, and not part of the MPI standard.
    pub fn is_extension(&self) -> bool {
        self.name.starts_with("MPIX_")
    }

    /// Returns the name of the library's function for the call: its class's, except for collective operations, which
    /// have one for each form.
    pub fn wrapper(&self) -> &'static str {
        match self.form {
            _ if !self.class.is_collective() => self.class.name(),
            Form::Plain => "collective",
            Form::Immediate => "collective_immediate",
            Form::Persistent => "collective_persistent",
        }
    }

    /// Returns the arguments passed to this function unchanged.
    pub fn taken(&self) -> impl Iterator<Item = &Argument> {
        self.arguments.iter().filter(|argument| self.class.takes().contains(&argument.kind))
    }

    /// Returns the first argument of a kind.
    pub fn argument(&self, kind: Kind) -> Option<&Argument> {
        self.arguments.iter().find(|argument| argument.kind == kind)
    }

    /// Returns the argument with a name.
    pub fn named(&self, name: &str) -> Option<&Argument> {
        self.arguments.iter().find(|argument| argument.name == name)
    }

    /// Returns the declaration in C.
    pub fn prototype(&self) -> String {
        let arguments: Vec<String> =
            self.arguments.iter().map(|argument| argument.kind.c(&argument.name, self.is_large)).collect();
        let arguments = if arguments.is_empty() { "void".to_owned() } else { arguments.join(", ") };
        format!("int {}({arguments})", self.symbol())
    }
}
