//! The MPI calls that the interposition library knows: one table, from which everything else is made.
//!
//! `calls.txt` has a line for each call: what class it is of, its name, its arguments with their kinds. [`table`] reads it and writes
//! out the forms that follow from a line (immediate and persistent collectives, large counts). The wrappers are generated from it,
//! checked by the compiler against the prototypes of the MPI at hand; so are the list of calls that the tests have to reach, and
//! whatever another language's binding needs.
//!
//! ```
//! let table = counterfoil_mpi_calls::table()?;
//! let send = table.iter().find(|call| call.name == "Send").unwrap();
//! assert_eq!(send.prototype(), "int MPI_Send(const void *buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm)");
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
