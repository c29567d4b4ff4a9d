//! Environment variables of a launcher, for Open MPI 4 and 5.

/// Permits the launcher to run as root, as in containers.
pub const AS_ROOT: [(&str, &str); 4] = [
    ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
    ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
    ("PRTE_ALLOW_RUN_AS_ROOT", "1"),
    ("PRTE_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
];

/// Set for processes that survive the death of another one, although MPI tells them nothing.
pub const LIVES_ON: (&str, &str) = ("COUNTERFOIL_LIVES_ON", "1");

/// Permits more processes than processors.
///
/// Open MPI 4 reads the first variable, Open MPI 5 the second.
pub const OVERSUBSCRIBED: [(&str, &str); 2] =
    [("OMPI_MCA_rmaps_base_oversubscribe", "1"), ("PRTE_MCA_rmaps_default_mapping_policy", ":OVERSUBSCRIBE")];
