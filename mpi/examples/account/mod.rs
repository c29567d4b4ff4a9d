//! Summary line of a rank, for the tests that run these examples.

use counterfoil_mpi::logged::Account;

/// Prints the numbers of messages, of their bytes, of contributions and of determinants.
pub(crate) fn print(rank: u32, account: Account) {
    let Account { messages_logged, bytes_logged, contributions, determinants, .. } = account;
    println!("rank {rank} {messages_logged} {bytes_logged} {contributions} {determinants}");
}
