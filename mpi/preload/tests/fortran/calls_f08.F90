! Calls that a compiler passes otherwise than C does: constants, truth values, indices, strings, functions of the program.
module functions
  use mpi_f08
  implicit none
  integer :: handled = 0
  integer(kind=MPI_ADDRESS_KIND) :: completed = 0
contains
  ! Sum of complex numbers whose parts are integers.
  subroutine add_pairs(into, from, length, datatype)
    use, intrinsic :: iso_c_binding, only: c_ptr, c_f_pointer
    type(c_ptr), value :: into, from
    integer :: length
    type(MPI_Datatype) :: datatype
    integer, pointer :: a(:), b(:)
    call c_f_pointer(into, a, [2 * length])
    call c_f_pointer(from, b, [2 * length])
    b = a + b
  end subroutine
  subroutine note_error(comm, code)
    type(MPI_Comm) :: comm
    integer :: code
    handled = handled + 1
  end subroutine
  subroutine copy_attribute(comm, key, extra, value, copied, flag, ierror)
    type(MPI_Comm) :: comm
    integer :: key, ierror
    integer(kind=MPI_ADDRESS_KIND) :: extra, value, copied
    logical :: flag
    copied = value + extra
    flag = .true.
    ierror = MPI_SUCCESS
  end subroutine
  subroutine delete_attribute(comm, key, value, extra, ierror)
    type(MPI_Comm) :: comm
    integer :: key, ierror
    integer(kind=MPI_ADDRESS_KIND) :: value, extra
    ierror = MPI_SUCCESS
  end subroutine
  subroutine query_request(extra, status, ierror)
    integer(kind=MPI_ADDRESS_KIND) :: extra
    type(MPI_Status) :: status
    integer :: ierror
    call MPI_Status_set_elements(status, MPI_INTEGER, 3)
    call MPI_Status_set_cancelled(status, .false.)
    status%MPI_SOURCE = int(extra)
    status%MPI_TAG = 17
    ierror = MPI_SUCCESS
  end subroutine
  subroutine free_request(extra, ierror)
    integer(kind=MPI_ADDRESS_KIND) :: extra
    integer :: ierror
    completed = completed + extra
    ierror = MPI_SUCCESS
  end subroutine
  subroutine cancel_request(extra, complete, ierror)
    integer(kind=MPI_ADDRESS_KIND) :: extra
    logical :: complete
    integer :: ierror
    ierror = MPI_SUCCESS
  end subroutine
end module

program calls
  use functions
  implicit none
  integer :: rank, ranks, right, left, i, n, count, index, provided, ierror
  integer :: from_left(8), from_right(8), numbers(8), grid(4, 4), pair(2), sum_of_pairs(2)
  integer, allocatable :: indices(:), sizes(:), offsets(:)
  type(MPI_Datatype), allocatable :: types(:)
  type(MPI_Request) :: requests(4), request
  type(MPI_Status) :: status, statuses(4)
  type(MPI_Comm) :: world, half, ring, merged
  type(MPI_Group) :: group, part
  type(MPI_Op) :: pairs
  type(MPI_Datatype) :: pair_type, column, absolute
  type(MPI_Errhandler) :: handler
  type(MPI_Message) :: message
  integer(kind=MPI_ADDRESS_KIND) :: value, address(1)
  integer :: key, length
  logical :: flag, periodic(1), periods(1)
  integer :: dims(1), coords(1)
  character(len=MPI_MAX_OBJECT_NAME) :: name
  double precision :: began

  call MPI_Init_thread(MPI_THREAD_FUNNELED, provided)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks)
  call check(ierror == MPI_SUCCESS, 1)
  began = MPI_Wtime()
  right = mod(rank + 1, ranks)
  left = mod(rank + ranks - 1, ranks)
  call MPI_Comm_dup(MPI_COMM_WORLD, world)
  call MPI_Comm_set_name(world, 'the world  ')
  call MPI_Comm_get_name(world, name, length)
  call check(name == 'the world' .and. length == 9, 2)

  ! Around the ring, in every mode.
  numbers = [(100 * rank + i, i = 1, 8)]
  call MPI_Irecv(from_left, 8, MPI_INTEGER, left, 5, world, requests(1))
  call MPI_Irecv(from_right, 8, MPI_INTEGER, right, 6, world, requests(2))
  call MPI_Isend(numbers, 8, MPI_INTEGER, right, 5, world, requests(3))
  call MPI_Issend(numbers, 8, MPI_INTEGER, left, 6, world, requests(4))
  call MPI_Waitall(4, requests, statuses)
  call check(statuses(1)%MPI_SOURCE == left .and. statuses(2)%MPI_TAG == 6, 3)
  call MPI_Get_count(statuses(1), MPI_INTEGER, count)
  call check(count == 8 .and. all(from_left == [(100 * left + i, i = 1, 8)]), 4)
  call check(all(requests == MPI_REQUEST_NULL), 5)
  ! Every second element: the compiler makes a copy.
  call MPI_Sendrecv(numbers(1:8:2), 4, MPI_INTEGER, right, 7, from_left(1:8:2), 4, MPI_INTEGER, left, 7, world, &
                    MPI_STATUS_IGNORE)
  call check(from_left(7) == 100 * left + 7, 6)

  ! Indices begin at 1.
  do i = 1, 3
    call MPI_Irecv(from_left(i), 1, MPI_INTEGER, left, 10 + i, world, requests(i))
  end do
  call MPI_Send(numbers(2), 1, MPI_INTEGER, right, 12, world)
  call MPI_Waitany(3, requests, index, status)
#ifndef WRONG_INDICES
  call check(index == 2, 35)
#endif
  call check(status%MPI_TAG == 12, 7)
  call MPI_Barrier(world)
  call MPI_Send(numbers(1), 1, MPI_INTEGER, right, 11, world)
  call MPI_Send(numbers(3), 1, MPI_INTEGER, right, 13, world)
  allocate(indices(3))
  n = 0
  do while (n < 2)
    call MPI_Testsome(3, requests, count, indices, statuses)
    do i = 1, count
#ifndef WRONG_INDICES
      call check(statuses(i)%MPI_TAG == 10 + indices(i), 8)
#endif
    end do
    n = n + count
  end do
  call MPI_Waitany(3, requests, index, MPI_STATUS_IGNORE)
#ifndef WRONG_INDICES
  call check(index == MPI_UNDEFINED, 9)
#endif
  call MPI_Waitsome(3, requests, count, indices, MPI_STATUSES_IGNORE)
  call check(count == MPI_UNDEFINED, 10)

  ! Truth values, probes, matched messages, persistent requests.
  call MPI_Send(numbers, 3, MPI_INTEGER, right, 20, world)
  flag = .false.
  do while (.not. flag)
    call MPI_Iprobe(left, 20, world, flag, status)
  end do
  call check(flag .eqv. .true., 11)
  call MPI_Mprobe(MPI_ANY_SOURCE, 20, world, message, status)
  call MPI_Mrecv(from_left, 3, MPI_INTEGER, message, status)
  call check(from_left(3) == 100 * left + 3 .and. message == MPI_MESSAGE_NULL, 12)
  call MPI_Send_init(numbers, 2, MPI_INTEGER, right, 21, world, requests(1))
  call MPI_Recv_init(from_left, 2, MPI_INTEGER, left, 21, world, requests(2))
  do i = 1, 3
    call MPI_Startall(2, requests)
    call MPI_Wait(requests(2), status)
    flag = .false.
    do while (.not. flag)
      call MPI_Test(requests(1), flag, MPI_STATUS_IGNORE)
    end do
  end do
  call MPI_Request_free(requests(1))
  call MPI_Request_free(requests(2))

  ! Collective operations: in place, at absolute addresses, with a function of the program's, with a list of datatypes.
  from_left = rank
  call MPI_Allreduce(MPI_IN_PLACE, from_left, 8, MPI_INTEGER, MPI_SUM, world)
  call check(all(from_left == ranks * (ranks - 1) / 2), 13)
  call MPI_Get_address(numbers, address(1))
  call MPI_Type_create_hindexed(1, [8], address, MPI_INTEGER, absolute)
  call MPI_Type_commit(absolute)
  call MPI_Bcast(MPI_BOTTOM, 1, absolute, 0, world)
  call check(all(numbers == [(i, i = 1, 8)]), 14)
  call MPI_Type_free(absolute)
  call check(absolute == MPI_DATATYPE_NULL, 15)
  numbers = [(100 * rank + i, i = 1, 8)]
  call MPI_Type_contiguous(2, MPI_INTEGER, pair_type)
  call MPI_Type_commit(pair_type)
  call MPI_Op_create(add_pairs, .true., pairs)
  pair = [rank, 1]
  call MPI_Reduce(pair, sum_of_pairs, 1, pair_type, pairs, 0, world)
  if (rank == 0) call check(all(sum_of_pairs == [ranks * (ranks - 1) / 2, ranks]), 16)
  call MPI_Op_free(pairs)
  allocate(types(ranks), sizes(ranks), offsets(ranks))
  types = MPI_INTEGER
  types(1) = pair_type
  sizes = 2
  sizes(1) = 1
  offsets = [(8 * (i - 1), i = 1, ranks)]
  ! Not MPI_Ialltoallw: Open MPI frees its copy of the list before the operation reads it.
  call MPI_Alltoallw(numbers, sizes, offsets, types, from_left, sizes, offsets, types, world)
  call check(all(from_left(1:2) == [1 + 2 * rank, 2 + 2 * rank]), 17)
  call MPI_Type_free(pair_type)
  call MPI_Type_vector(4, 1, 4, MPI_INTEGER, column)
  call MPI_Type_commit(column)
  grid = rank
  call MPI_Sendrecv(grid(2, 1), 1, column, right, 30, grid(3, 1), 1, column, left, 30, world, status)
  call check(all(grid(3, :) == left) .and. all(grid(2, :) == rank), 18)
  call MPI_Type_free(column)

  ! Communicators, groups, topologies.
  call MPI_Comm_split(world, mod(rank, 2), rank, half)
  call MPI_Comm_size(half, n)
  call check(n == (ranks + 1 - mod(rank, 2)) / 2, 19)
  call MPI_Allreduce(rank, n, 1, MPI_INTEGER, MPI_MAX, half)
  call MPI_Comm_free(half)
  call check(half == MPI_COMM_NULL, 20)
  periodic = .true.
  dims = ranks
  call MPI_Cart_create(world, 1, dims, periodic, .false., ring)
  call MPI_Cart_get(ring, 1, dims, periods, coords)
  call check(periods(1) .eqv. .true., 21)
  call MPI_Cart_shift(ring, 0, 1, i, n)
  call check(i == left .and. n == right, 22)
  call MPI_Neighbor_allgather(numbers(1), 1, MPI_INTEGER, pair, 1, MPI_INTEGER, ring)
  call check(pair(1) == 100 * left + 1 .and. pair(2) == 100 * right + 1, 23)
  call MPI_Comm_free(ring)
  call MPI_Dist_graph_create_adjacent(world, 1, [left], MPI_UNWEIGHTED, 1, [right], MPI_UNWEIGHTED, MPI_INFO_NULL, &
                                      .false., ring)
  call MPI_Dist_graph_neighbors_count(ring, i, n, flag)
  call check(i == 1 .and. n == 1 .and. .not. flag, 24)
  call MPI_Dist_graph_neighbors(ring, 1, pair(1:1), MPI_UNWEIGHTED, 1, pair(2:2), MPI_UNWEIGHTED)
  call check(pair(1) == left .and. pair(2) == right, 25)
  call MPI_Comm_free(ring)
  call MPI_Comm_group(world, group)
  call MPI_Group_range_incl(group, 1, reshape([0, ranks - 1, 2], [3, 1]), part)
  call MPI_Group_size(part, n)
  call check(n == (ranks + 1) / 2, 26)
  call MPI_Group_free(group)
  call MPI_Group_free(part)
  call MPI_Comm_idup(world, merged, request)
  call MPI_Wait(request, status)
  call MPI_Send(numbers, 1, MPI_INTEGER, right, 1, merged)
  call MPI_Recv(from_left, 1, MPI_INTEGER, left, 1, merged, status)
  call check(from_left(1) == 100 * left + 1, 27)
  call MPI_Comm_free(merged)

  ! Attributes and functions of the program's. The bindings of one release don't reach the attributes of another.
#ifndef MIXED_RELEASES
  call MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, value, flag)
  call check(flag .and. value >= 32767, 28)
  call MPI_Comm_create_keyval(copy_attribute, delete_attribute, key, 1000_MPI_ADDRESS_KIND)
  call MPI_Comm_set_attr(MPI_COMM_WORLD, key, 7_MPI_ADDRESS_KIND)
  call MPI_Comm_get_attr(MPI_COMM_WORLD, key, value, flag)
  call check(flag .and. value == 7, 29)
  call MPI_Comm_delete_attr(MPI_COMM_WORLD, key)
  call MPI_Comm_get_attr(MPI_COMM_WORLD, key, value, flag)
  call check(.not. flag, 30)
  call MPI_Comm_set_attr(world, key, 8_MPI_ADDRESS_KIND)
  call MPI_Comm_dup(world, merged)
  call MPI_Comm_get_attr(merged, key, value, flag)
  call check(flag .and. value == 1008, 31)
  call MPI_Comm_free(merged)
#endif
  call MPI_Comm_dup(world, merged)
#ifndef MIXED_RELEASES
  call MPI_Comm_create_errhandler(note_error, handler)
  call MPI_Comm_set_errhandler(merged, handler)
  call MPI_Send(numbers, 1, MPI_INTEGER, ranks, 0, merged, ierror)
  call check(handled == 1, 32)
#endif
  call MPI_Comm_free(merged)
  call MPI_Grequest_start(query_request, free_request, cancel_request, 2_MPI_ADDRESS_KIND, request)
  call MPI_Grequest_complete(request)
  call MPI_Wait(request, status)
  call MPI_Get_count(status, MPI_INTEGER, count)
  call check(status%MPI_SOURCE == 2 .and. status%MPI_TAG == 17 .and. count == 3 .and. completed == 2, 33)
  call check(MPI_Wtime() >= began, 34)
  call MPI_Comm_free(world)
  call MPI_Barrier(MPI_COMM_WORLD)
  if (rank == 0) print '(a, i0, a)', 'calls_f08: ok on ', ranks, ' ranks'
  call MPI_Finalize()
contains
  subroutine check(holds, number)
    logical, intent(in) :: holds
    integer, intent(in) :: number
    if (holds) return
    print '(a, i0, a, i0)', 'rank ', rank, ': failed: ', number
    call MPI_Abort(MPI_COMM_WORLD, 3)
  end subroutine
end program
