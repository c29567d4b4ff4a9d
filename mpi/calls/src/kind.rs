//! Kinds of arguments.

use std::str::FromStr;

/// Argument kind: its meaning, and its type in C and in Rust.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Buffer that MPI reads.
    In,
    /// Buffer that MPI writes.
    Out,
    /// Number of elements: an `MPI_Count` in large-count forms.
    Count,
    /// Number of elements: always an `MPI_Count`.
    LargeCount,
    /// Each rank's number of elements.
    Counts,
    /// Each rank's displacement, in elements: `MPI_Aint` in large-count forms.
    Displs,
    /// Each rank's displacement, in bytes.
    Addresses,
    /// Size in bytes.
    Address,
    /// Datatype.
    Type,
    /// Datatype for each rank.
    Types,
    /// Pointer to a datatype.
    TypeOut,
    /// Reduction operation.
    Op,
    /// Pointer to a reduction operation.
    OpOut,
    /// Message destination.
    Dest,
    /// Message source, or a wildcard.
    Source,
    /// Root rank.
    Root,
    /// Tag, or a wildcard for a receive.
    Tag,
    /// Communicator.
    Comm,
    /// Pointer to a communicator.
    CommOut,
    /// Group.
    Group,
    /// Pointer to a group.
    GroupOut,
    /// Info object.
    Info,
    /// Array of info objects.
    Infos,
    /// Error handler.
    Errhandler,
    /// Pointer to a new error handler.
    ErrhandlerOut,
    /// Error handler function.
    Handler,
    /// Returns a generalized request's status.
    QueryFunction,
    /// Frees a generalized request's state.
    FreeFunction,
    /// Cancels a generalized request.
    CancelFunction,
    /// Pointer to a new request.
    RequestOut,
    /// Pointer to a request that the call may complete.
    Request,
    /// Request left unchanged by the call.
    RequestIn,
    /// Request array, which the call may complete.
    Requests,
    /// Pointer to a matched message.
    Message,
    /// Pointer to a status, or `MPI_STATUS_IGNORE`.
    Status,
    /// Status array, or `MPI_STATUSES_IGNORE`.
    Statuses,
    /// Pointer to a flag.
    Flag,
    /// Pointer to an index.
    IndexOut,
    /// Index array, filled in by the call.
    IndicesOut,
    /// Integer.
    Int,
    /// Pointer to an integer.
    IntOut,
    /// Integer array.
    Ints,
    /// Integer array, filled in by the call.
    IntsOut,
    /// Truth value array, filled in by the call.
    LogicalsOut,
    /// Weight array, or `MPI_UNWEIGHTED` or `MPI_WEIGHTS_EMPTY`.
    Weights,
    /// Weight array, filled in by the call, or `MPI_UNWEIGHTED`.
    WeightsOut,
    /// Array of rank ranges: first, last, stride.
    Ranges,
    /// String.
    String,
    /// Null-terminated string array.
    Strings,
    /// Array of [`Strings`](Self::Strings).
    Argvs,
    /// Pointer to `main`'s `argc`.
    Argc,
    /// Pointer to `main`'s `argv`.
    Argv,
    /// Pointer to a new window.
    WinOut,
    /// Pointer to a new file.
    FileOut,
    /// Pointer to a new session.
    SessionOut,
}

/// Name in the table, type in C before and after the argument's name, type in Rust.
type Row = (&'static str, Kind, &'static str, &'static str, &'static str);

const ROWS: &[Row] = &[
    ("in", Kind::In, "const void *", "", "*const c_void"),
    ("out", Kind::Out, "void *", "", "*mut c_void"),
    ("count", Kind::Count, "int ", "", "c_int"),
    ("large_count", Kind::LargeCount, "MPI_Count ", "", "ffi::MPI_Count"),
    ("counts", Kind::Counts, "const int ", "[]", "*const c_int"),
    ("displs", Kind::Displs, "const int ", "[]", "*const c_int"),
    ("addresses", Kind::Addresses, "const MPI_Aint ", "[]", "*const ffi::MPI_Aint"),
    ("address", Kind::Address, "MPI_Aint ", "", "ffi::MPI_Aint"),
    ("type", Kind::Type, "MPI_Datatype ", "", "ffi::MPI_Datatype"),
    ("types", Kind::Types, "const MPI_Datatype ", "[]", "*const ffi::MPI_Datatype"),
    ("type_out", Kind::TypeOut, "MPI_Datatype *", "", "*mut ffi::MPI_Datatype"),
    ("op", Kind::Op, "MPI_Op ", "", "ffi::MPI_Op"),
    ("op_out", Kind::OpOut, "MPI_Op *", "", "*mut ffi::MPI_Op"),
    ("dest", Kind::Dest, "int ", "", "c_int"),
    ("source", Kind::Source, "int ", "", "c_int"),
    ("root", Kind::Root, "int ", "", "c_int"),
    ("tag", Kind::Tag, "int ", "", "c_int"),
    ("comm", Kind::Comm, "MPI_Comm ", "", "ffi::MPI_Comm"),
    ("comm_out", Kind::CommOut, "MPI_Comm *", "", "*mut ffi::MPI_Comm"),
    ("group", Kind::Group, "MPI_Group ", "", "ffi::MPI_Group"),
    ("group_out", Kind::GroupOut, "MPI_Group *", "", "*mut ffi::MPI_Group"),
    ("info", Kind::Info, "MPI_Info ", "", "ffi::MPI_Info"),
    ("infos", Kind::Infos, "const MPI_Info ", "[]", "*const ffi::MPI_Info"),
    ("errhandler", Kind::Errhandler, "MPI_Errhandler ", "", "ffi::MPI_Errhandler"),
    ("errhandler_out", Kind::ErrhandlerOut, "MPI_Errhandler *", "", "*mut ffi::MPI_Errhandler"),
    ("handler", Kind::Handler, "MPI_Comm_errhandler_function *", "", "ffi::MPI_Comm_errhandler_function"),
    ("query_fn", Kind::QueryFunction, "MPI_Grequest_query_function *", "", "ffi::MPI_Grequest_query_function"),
    ("free_fn", Kind::FreeFunction, "MPI_Grequest_free_function *", "", "ffi::MPI_Grequest_free_function"),
    ("cancel_fn", Kind::CancelFunction, "MPI_Grequest_cancel_function *", "", "ffi::MPI_Grequest_cancel_function"),
    ("request_out", Kind::RequestOut, "MPI_Request *", "", "*mut ffi::MPI_Request"),
    ("request", Kind::Request, "MPI_Request *", "", "*mut ffi::MPI_Request"),
    ("request_in", Kind::RequestIn, "MPI_Request ", "", "ffi::MPI_Request"),
    ("requests", Kind::Requests, "MPI_Request ", "[]", "*mut ffi::MPI_Request"),
    ("message", Kind::Message, "MPI_Message *", "", "*mut ffi::MPI_Message"),
    ("status", Kind::Status, "MPI_Status *", "", "*mut ffi::MPI_Status"),
    ("statuses", Kind::Statuses, "MPI_Status ", "[]", "*mut ffi::MPI_Status"),
    ("flag", Kind::Flag, "int *", "", "*mut c_int"),
    ("index_out", Kind::IndexOut, "int *", "", "*mut c_int"),
    ("indices_out", Kind::IndicesOut, "int ", "[]", "*mut c_int"),
    ("int", Kind::Int, "int ", "", "c_int"),
    ("int_out", Kind::IntOut, "int *", "", "*mut c_int"),
    ("ints", Kind::Ints, "const int ", "[]", "*const c_int"),
    ("ints_out", Kind::IntsOut, "int ", "[]", "*mut c_int"),
    ("logicals_out", Kind::LogicalsOut, "int ", "[]", "*mut c_int"),
    ("weights", Kind::Weights, "const int ", "[]", "*const c_int"),
    ("weights_out", Kind::WeightsOut, "int ", "[]", "*mut c_int"),
    ("ranges", Kind::Ranges, "int ", "[][3]", "*mut [c_int; 3]"),
    ("string", Kind::String, "const char *", "", "*const c_char"),
    ("strings", Kind::Strings, "char *", "[]", "*mut *mut c_char"),
    ("argvs", Kind::Argvs, "char **", "[]", "*mut *mut *mut c_char"),
    ("argc", Kind::Argc, "int *", "", "*mut c_int"),
    ("argv", Kind::Argv, "char ***", "", "*mut *mut *mut c_char"),
    ("win_out", Kind::WinOut, "MPI_Win *", "", "*mut ffi::MPI_Win"),
    ("file_out", Kind::FileOut, "MPI_File *", "", "*mut ffi::MPI_File"),
    ("session_out", Kind::SessionOut, "MPI_Session *", "", "*mut ffi::MPI_Session"),
];

impl Kind {
    fn row(self) -> &'static Row {
        // A test checks each kind for a row.
        ROWS.iter().find(|row| row.1 == self).unwrap_or(&ROWS[0])
    }

    /// Returns `true` if large-count forms have a different type for it.
    pub fn widens(self) -> bool {
        matches!(self, Kind::Count | Kind::Counts | Kind::Displs)
    }

    /// Returns the C declaration for an argument of this kind.
    pub fn c(self, name: &str, is_large: bool) -> String {
        let &(_, _, before, after, _) = self.row();
        match (self, is_large) {
            (Kind::Count, true) => format!("MPI_Count {name}"),
            (Kind::Counts, true) => format!("const MPI_Count {name}[]"),
            (Kind::Displs, true) => format!("const MPI_Aint {name}[]"),
            _ => format!("{before}{name}{after}"),
        }
    }

    /// Returns the Rust type.
    ///
    /// `ffi` is the module with the MPI's bindings.
    pub fn rust(self, is_large: bool) -> &'static str {
        match (self, is_large) {
            (Kind::Count, true) => "ffi::MPI_Count",
            (Kind::Counts, true) => "*const ffi::MPI_Count",
            (Kind::Displs, true) => "*const ffi::MPI_Aint",
            _ => self.row().4,
        }
    }
}

impl FromStr for Kind {
    type Err = ();

    fn from_str(text: &str) -> Result<Kind, ()> {
        ROWS.iter().find(|row| row.0 == text).map(|row| row.1).ok_or(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_one_row_and_is_found_by_its_name() {
        for row in ROWS {
            assert_eq!(row.0.parse(), Ok(row.1));
            assert_eq!(ROWS.iter().filter(|other| other.0 == row.0 || other.1 == row.1).count(), 1, "{}", row.0);
        }
        // The last variant has the last row.
        assert_eq!(ROWS.len(), Kind::SessionOut as usize + 1);
    }
}
