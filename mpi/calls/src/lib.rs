//! Table of MPI calls wrapped by the interposition library.
//!
//! `calls.txt` has a line for each call: its class, its name, and its arguments with their kinds. [`table`] reads it
//! and expands each line to its forms (immediate and persistent collectives, large counts). The wrappers are generated
//! from the table, and the compiler checks them against the MPI's prototypes; so is the list of calls that the tests
//! have to make.
//!
//! ```
//! let table = counterfoil_mpi_calls::table()?;
//! let send = table.iter().find(|call| call.name == "Send").unwrap();
//! let arguments = "const void *buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm";
//! assert_eq!(send.prototype(), format!("int MPI_Send({arguments})"));
//! # Ok::<(), counterfoil_mpi_calls::TableError>(())
//! ```

#![forbid(unsafe_code)]

mod call;
mod class;
mod kind;
mod table;

pub use call::{Argument, Call, Form};
pub use class::Class;
pub use kind::Kind;
pub use table::{TableError, parse, table};
