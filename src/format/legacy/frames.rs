//! The frames that google/pprof leaves out of text profiles: those of what recorded the samples.
//! Each is a pair of regular expressions: frames to drop, and frames to keep although they match.
//!
//! Source: google/pprof, `profile/legacy_profile.go` (`addLegacyFrameInfo`).

/// Of heap profiles: allocators.
pub(super) const ALLOCATORS: (&str, &str) = (
    "calloc|cfree|malloc|free|memalign|do_memalign|(__)?posix_memalign|pvalloc|valloc|realloc|\
     tcmalloc::.*|tc_calloc|tc_cfree|tc_malloc|tc_free|tc_memalign|tc_posix_memalign|tc_pvalloc|\
     tc_valloc|tc_realloc|tc_new|tc_delete|tc_newarray|tc_deletearray|tc_new_nothrow|\
     tc_newarray_nothrow|malloc_zone_malloc|malloc_zone_calloc|malloc_zone_valloc|\
     malloc_zone_realloc|malloc_zone_memalign|malloc_zone_free|runtime\\..*|BaseArena::.*|\
     (::)?do_malloc_no_errno|(::)?do_malloc_pages|(::)?do_malloc|DoSampledAllocation|\
     MallocedMemBlock::MallocedMemBlock|_M_allocate|__builtin_(vec_)?delete|\
     __builtin_(vec_)?new|__gnu_cxx::new_allocator::allocate|__libc_malloc|\
     __malloc_alloc_template::allocate|allocate|cpp_alloc|operator new(\\[\\])?|\
     simple_alloc::allocate",
    r"runtime\.panic|runtime\.reflectcall|runtime\.call[0-9]*",
);

/// Of contention profiles: locks.
pub(super) const LOCKS: (&str, &str) = (
    "RecordLockProfileData|(base::)?RecordLockProfileData.*|(base::)?SubmitMutexProfileData.*|\
     (base::)?SubmitSpinLockProfileData.*|(base::Mutex::)?AwaitCommon.*|\
     (base::Mutex::)?Unlock.*|(base::Mutex::)?UnlockSlow.*|(base::Mutex::)?ReaderUnlock.*|\
     (base::MutexLock::)?~MutexLock.*|(Mutex::)?AwaitCommon.*|(Mutex::)?Unlock.*|\
     (Mutex::)?UnlockSlow.*|(Mutex::)?ReaderUnlock.*|(MutexLock::)?~MutexLock.*|\
     (SpinLock::)?Unlock.*|(SpinLock::)?SlowUnlock.*|(SpinLockHolder::)?~SpinLockHolder.*",
    "",
);

/// Of all others: gperftools' CPU profiler.
pub(super) const CPU_PROFILER: (&str, &str) = (crate::format::cpuprofile::DROP_FRAMES, "");
