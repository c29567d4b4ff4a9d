//! A rank's summary line, for tests running these examples.

use counterfoil_mpi::logged::Account;

/// Prints the numbers of messages, message bytes, contributions and determinants.
pub(crate) fn print(rank: u32, account: Account) {
    let Account { messages_logged, bytes_logged, contributions, determinants, .. } = account;
    println!("rank {rank} {messages_logged} {bytes_logged} {contributions} {determinants}");
}
