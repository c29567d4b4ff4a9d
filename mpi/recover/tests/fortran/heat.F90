! A rod whose ends are hot and cold, in parts, with a checkpoint each few steps: `heat CELLS STEPS EVERY`.
#include "../../include/counterfoil_checkpoint.f90"

program heat
  use mpi_f08
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: error_unit
  use counterfoil_checkpoints
  implicit none
  integer, target :: step = 0
  integer :: cells, steps, every, made, rank, ranks, left, right
  double precision, allocatable, target :: now(:)
  double precision, allocatable :: next(:)
  double precision :: sums(1), all_sums(1)
  type(MPI_Comm) :: rod
  type(MPI_Request) :: requests(4)
  character(len=20) :: word
  logical :: goes_on, taken
  integer :: i

  call get_command_argument(1, word); read (word, *) cells
  call get_command_argument(2, word); read (word, *) steps
  call get_command_argument(3, word); read (word, *) every
  call MPI_Init()
  call MPI_Comm_size(MPI_COMM_WORLD, ranks)
  call MPI_Cart_create(MPI_COMM_WORLD, 1, [ranks], [.false.], .false., rod)
  call MPI_Comm_rank(rod, rank)
  call MPI_Cart_shift(rod, 0, 1, left, right)
  call MPI_Bcast(cells, 1, MPI_INTEGER, 0, rod)
  allocate(now(0:cells + 1), next(cells))
  now = [(mod(rank * 31 + i * 7, 100), i = 0, cells + 1)]
  made = 0
  call counterfoil_protect(0, c_loc(step), c_sizeof(step))
  call counterfoil_protect(1, c_loc(now), 8_c_size_t * size(now))
  goes_on = counterfoil_restarted()
  do while (step < steps)
    if (every > 0) then
      if (mod(step, every) == 0) then
        call counterfoil_checkpoint(taken)
        if (.not. taken) call MPI_Abort(MPI_COMM_WORLD, 3)
      end if
    end if
    if (left == MPI_PROC_NULL) now(0) = 100
    if (right == MPI_PROC_NULL) now(cells + 1) = 0
    call MPI_Irecv(now(0:0), 1, MPI_DOUBLE_PRECISION, left, 1, rod, requests(1))
    call MPI_Irecv(now(cells + 1:), 1, MPI_DOUBLE_PRECISION, right, 2, rod, requests(2))
    call MPI_Isend(now(cells:), 1, MPI_DOUBLE_PRECISION, right, 1, rod, requests(3))
    call MPI_Isend(now(1:), 1, MPI_DOUBLE_PRECISION, left, 2, rod, requests(4))
    call MPI_Waitall(4, requests, MPI_STATUSES_IGNORE)
    next = now(1:cells) + 0.25d0 * (now(0:cells - 1) - 2 * now(1:cells) + now(2:cells + 1))
    now(1:cells) = next
    step = step + 1
    made = made + 1
    if (mod(step, 50) == 0) then
      sums = sum(now(1:cells))
      call MPI_Allreduce(sums, all_sums, 1, MPI_DOUBLE_PRECISION, MPI_SUM, rod)
      if (rank == 0) print '(a, i0, a, es25.17)', 'step ', step, ': ', all_sums
    end if
  end do
  sums = sum(now(1:cells))
  call MPI_Reduce(sums, all_sums, 1, MPI_DOUBLE_PRECISION, MPI_SUM, 0, rod)
  if (rank == 0) print '(a, es25.17, a, i0, a)', 'heat: ', all_sums, ' after ', steps, ' steps'
  write (error_unit, '(a, i0, a, i0, a, i0, a, i0)') 'heat: rank ', rank, ' made ', made, ' of ', steps, &
    ' steps, restarted ', merge(1, 0, goes_on)
  call MPI_Comm_free(rod)
  call MPI_Finalize()
end program
