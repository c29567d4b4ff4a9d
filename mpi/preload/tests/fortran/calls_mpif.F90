! The calls of mpif.h and, with USE_MPI, of the module mpi: integers for handles, arrays for statuses.
module functions
  implicit none
  integer :: handled = 0
contains
  subroutine largest(from, into, length, datatype)
    integer :: length, datatype
    integer :: from(length), into(length)
    into = max(from, into)
  end subroutine
  subroutine note_error(comm, code)
    integer :: comm, code
    handled = handled + 1
  end subroutine
end module

program calls
  use functions
#ifdef USE_MPI
  use mpi
  implicit none
#else
  implicit none
  include 'mpif.h'
#endif
  integer :: rank, ranks, right, left, i, n, count, index, ierror, length
  integer :: buffer(8), numbers(8), pair(2), indices(3)
  integer, allocatable :: sizes(:), offsets(:), types(:)
  ! A status in the middle of others is aligned to 4 bytes, or to 8.
  integer :: statuses(MPI_STATUS_SIZE, 3), status(MPI_STATUS_SIZE), before(1), odd(MPI_STATUS_SIZE + 1)
  integer :: requests(3), request, world, ring, group, handler, op, message, absolute, key, old
  integer(kind=MPI_ADDRESS_KIND) :: value, address(1)
  logical :: flag, periodic(2), remains(2)
  integer :: dims(2), coords(2)
  character(len=MPI_MAX_OBJECT_NAME) :: name
  double precision :: began
  common /place/ before, odd

  call MPI_Init(ierror)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierror)
  began = MPI_Wtime()
  right = mod(rank + 1, ranks)
  left = mod(rank + ranks - 1, ranks)
  call MPI_Comm_dup(MPI_COMM_WORLD, world, ierror)
  call MPI_Comm_set_name(world, 'a name', ierror)
  call MPI_Comm_get_name(world, name, length, ierror)
  call check(name == 'a name' .and. length == 6, 1)

  numbers = [(100 * rank + i, i = 1, 8)]
  call MPI_Sendrecv(numbers, 8, MPI_INTEGER, right, 1, buffer, 8, MPI_INTEGER, left, 1, world, odd, ierror)
  call check(odd(MPI_SOURCE) == left .and. odd(MPI_TAG) == 1, 2)
  call MPI_Get_count(odd, MPI_INTEGER, count, ierror)
  call check(count == 8 .and. buffer(8) == 100 * left + 8, 3)
  call MPI_Sendrecv(numbers, 1, MPI_INTEGER, right, 1, buffer, 8, MPI_INTEGER, left, 1, world, odd(2:), ierror)
  call check(odd(1 + MPI_SOURCE) == left, 4)
  do i = 1, 3
    call MPI_Irecv(buffer(i), 1, MPI_INTEGER, left, 10 + i, world, requests(i), ierror)
  end do
  call MPI_Bsend(numbers, 0, MPI_INTEGER, MPI_PROC_NULL, 0, world, ierror)
  call MPI_Send(numbers(3), 1, MPI_INTEGER, right, 13, world, ierror)
  call MPI_Waitany(3, requests, index, status, ierror)
  call check(index == 3 .and. status(MPI_TAG) == 13 .and. requests(3) == MPI_REQUEST_NULL, 5)
  call MPI_Barrier(world, ierror)
  call MPI_Send(numbers(1), 1, MPI_INTEGER, right, 11, world, ierror)
  call MPI_Send(numbers(2), 1, MPI_INTEGER, right, 12, world, ierror)
  n = 0
  do while (n < 2)
    call MPI_Waitsome(3, requests, count, indices, statuses, ierror)
    do i = 1, count
      call check(statuses(MPI_TAG, i) == 10 + indices(i), 6)
    end do
    n = n + count
  end do
  call MPI_Testany(3, requests, index, flag, MPI_STATUS_IGNORE, ierror)
#ifndef WRONG_INDICES
  call check(flag .and. index == MPI_UNDEFINED, 7)
#endif
  call MPI_Isend(numbers, 2, MPI_INTEGER, right, 2, world, requests(1), ierror)
  call MPI_Irecv(buffer, 2, MPI_INTEGER, left, 2, world, requests(2), ierror)
  flag = .false.
  do while (.not. flag)
    call MPI_Testall(2, requests, flag, MPI_STATUSES_IGNORE, ierror)
  end do
  call check(flag .eqv. .true., 8)
  call MPI_Send(numbers, 3, MPI_INTEGER, right, 3, world, ierror)
  flag = .false.
  do while (.not. flag)
    call MPI_Improbe(left, MPI_ANY_TAG, world, flag, message, status, ierror)
  end do
  call MPI_Imrecv(buffer, 3, MPI_INTEGER, message, request, ierror)
  call MPI_Wait(request, status, ierror)
  call check(buffer(3) == 100 * left + 3 .and. message == MPI_MESSAGE_NULL, 9)

  buffer = rank
  call MPI_Allreduce(MPI_IN_PLACE, buffer, 8, MPI_INTEGER, MPI_MAX, world, ierror)
  call check(all(buffer == ranks - 1), 10)
  call MPI_Get_address(numbers, address(1), ierror)
  call MPI_Type_create_hindexed(1, [8], address, MPI_INTEGER, absolute, ierror)
  call MPI_Type_commit(absolute, ierror)
  call MPI_Bcast(MPI_BOTTOM, 1, absolute, ranks - 1, world, ierror)
  call check(numbers(8) == 100 * (ranks - 1) + 8, 11)
  call MPI_Type_free(absolute, ierror)
  numbers = [(100 * rank + i, i = 1, 8)]
  call MPI_Op_create(largest, .true., op, ierror)
  call MPI_Scan(numbers, buffer, 2, MPI_INTEGER, op, world, ierror)
  call check(buffer(2) == 100 * rank + 2, 12)
  call MPI_Op_free(op, ierror)
  allocate(sizes(ranks), offsets(ranks), types(ranks))
  sizes = 2
  offsets = [(8 * (i - 1), i = 1, ranks)]
  types = MPI_INTEGER
  call MPI_Alltoallw(numbers, sizes, offsets, types, buffer, sizes, offsets, types, world, ierror)
  call check(all(buffer(1:2) == [1 + 2 * rank, 2 + 2 * rank]), 13)

  periodic = [.true., .false.]
  dims = [ranks, 1]
  call MPI_Cart_create(world, 2, dims, periodic, .false., ring, ierror)
  call MPI_Cart_get(ring, 2, dims, periodic, coords, ierror)
  call check((periodic(1) .eqv. .true.) .and. .not. periodic(2) .and. coords(1) == rank, 14)
  remains = [.true., .false.]
  call MPI_Cart_sub(ring, remains, group, ierror)
  call MPI_Comm_size(group, n, ierror)
  call check(n == ranks, 15)
  call MPI_Comm_free(group, ierror)
  call MPI_Comm_free(ring, ierror)
  call MPI_Dist_graph_create(world, 1, [rank], [1], [right], MPI_UNWEIGHTED, MPI_INFO_NULL, .false., ring, ierror)
  call MPI_Dist_graph_neighbors_count(ring, i, n, flag, ierror)
  call check(i == 1 .and. n == 1 .and. .not. flag, 16)
  call MPI_Comm_free(ring, ierror)
  call MPI_Comm_group(world, group, ierror)
  call MPI_Group_translate_ranks(group, 1, [rank], group, pair, ierror)
  call check(pair(1) == rank, 17)
  call MPI_Group_free(group, ierror)
  call check(group == MPI_GROUP_NULL, 18)
#ifndef MIXED_RELEASES
  call MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, value, flag, ierror)
  call check(flag .and. value >= 32767, 19)
#ifndef USE_MPI
  call MPI_Attr_get(MPI_COMM_WORLD, MPI_TAG_UB, old, flag, ierror)
  call check(flag .and. old == value, 20)
#endif
  call MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, key, value, ierror)
  value = -5
  call MPI_Comm_set_attr(MPI_COMM_WORLD, key, value, ierror)
  value = 0
  call MPI_Comm_get_attr(MPI_COMM_WORLD, key, value, flag, ierror)
  call check(flag .and. value == -5, 21)
#endif
#ifndef MIXED_RELEASES
  call MPI_Comm_create_errhandler(note_error, handler, ierror)
  call MPI_Comm_set_errhandler(world, handler, ierror)
  call MPI_Send(numbers, 1, MPI_INTEGER, ranks, 0, world, ierror)
  call check(handled == 1 .and. ierror /= MPI_SUCCESS, 22)
#endif
  call check(MPI_Wtime() >= began, 23)
  call MPI_Comm_free(world, ierror)
  call MPI_Barrier(MPI_COMM_WORLD, ierror)
  if (rank == 0) print '(a, i0, a)', 'calls_mpif: ok on ', ranks, ' ranks'
  call MPI_Finalize(ierror)
contains
  subroutine check(holds, number)
    logical, intent(in) :: holds
    integer, intent(in) :: number
    if (holds) return
    print '(a, i0, a, i0)', 'rank ', rank, ': failed: ', number
    call MPI_Abort(MPI_COMM_WORLD, 3, ierror)
  end subroutine
end program
