// Part of device.hpp for nvcc.
KVCAST_DEVICE unsigned thread_x() { return threadIdx.x; }
KVCAST_DEVICE unsigned block_threads() { return blockDim.x; }
KVCAST_DEVICE unsigned block_x() { return blockIdx.x; }
KVCAST_DEVICE unsigned block_y() { return blockIdx.y; }
KVCAST_DEVICE unsigned block_z() { return blockIdx.z; }
KVCAST_DEVICE unsigned grid_x() { return gridDim.x; }
KVCAST_DEVICE unsigned grid_y() { return gridDim.y; }

KVCAST_DEVICE unsigned char* shared_memory() {
  extern __shared__ __align__(128) unsigned char kvcast_shared[];
  return kvcast_shared;
}
KVCAST_DEVICE void block_sync() { __syncthreads(); }
KVCAST_DEVICE void warp_sync() { __syncwarp(); }

KVCAST_DEVICE float to_float(Half h) { return __half2float(__ushort_as_half(h.bits)); }
KVCAST_DEVICE Half to_half(float x) { return {__half_as_ushort(__float2half_rn(x))}; }
// The low, and the high, halves of two words, the first one's first.
KVCAST_DEVICE std::uint32_t low_halves(std::uint32_t a, std::uint32_t b) { return __byte_perm(a, b, 0x5410); }
KVCAST_DEVICE std::uint32_t high_halves(std::uint32_t a, std::uint32_t b) { return __byte_perm(a, b, 0x7632); }
// Both halves of a word times those of another.
KVCAST_DEVICE std::uint32_t multiply_halves(std::uint32_t a, std::uint32_t b) {
  std::uint32_t out;
  asm("mul.rn.f16x2 %0, %1, %2;\n" : "=r"(out) : "r"(a), "r"(b));
  return out;
}
KVCAST_DEVICE float as_float(std::uint32_t u) { return __uint_as_float(u); }
KVCAST_DEVICE std::uint32_t as_bits(float x) { return __float_as_uint(x); }

KVCAST_DEVICE float warp_xor(float x, unsigned mask) { return __shfl_xor_sync(0xFFFFFFFFu, x, static_cast<int>(mask)); }
template <typename T>
KVCAST_DEVICE T warp_from(T x, unsigned lane) {
  return __shfl_sync(0xFFFFFFFFu, x, static_cast<int>(lane));
}
KVCAST_DEVICE std::uint32_t warp_ballot(bool p) { return __ballot_sync(0xFFFFFFFFu, p); }
KVCAST_DEVICE unsigned count_bits(std::uint32_t x) { return static_cast<unsigned>(__popc(x)); }

KVCAST_DEVICE Vec16 load16(const void* p) {
  const uint4 v = *static_cast<const uint4*>(p);
  return {{v.x, v.y, v.z, v.w}};
}
// To device memory. Spelled out: where a pointer is one of two, the compiler forgets its alignment and stores four
// words.
KVCAST_DEVICE void store16(void* p, const Vec16& v) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};\n" ::"l"(__cvta_generic_to_global(p)), "r"(v.w[0]),
               "r"(v.w[1]), "r"(v.w[2]), "r"(v.w[3])
               : "memory");
}
KVCAST_DEVICE void store16_shared(void* p, const Vec16& v) {
  *static_cast<uint4*>(p) = make_uint4(v.w[0], v.w[1], v.w[2], v.w[3]);
}
// Two neighbouring halves as they are packed.
KVCAST_DEVICE std::uint32_t load4(const void* p) { return *static_cast<const std::uint32_t*>(p); }
KVCAST_DEVICE std::uint32_t atomic_add(std::uint32_t* p, std::uint32_t x) { return atomicAdd(p, x); }
KVCAST_DEVICE float atomic_add(float* p, float x) { return atomicAdd(p, x); }
KVCAST_DEVICE std::uint32_t atomic_or(std::uint32_t* p, std::uint32_t x) { return atomicOr(p, x); }

KVCAST_DEVICE float exp2_fast(float x) { return exp2f(x); }
KVCAST_DEVICE float log2_fast(float x) { return log2f(x); }

KVCAST_DEVICE std::uint32_t shared_address(const void* p) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
}
// 16 bytes of global to shared memory without passing registers; zeros where not valid.
KVCAST_DEVICE void copy_async(void* to, const void* from, bool valid) {
  const int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(shared_address(to)), "l"(from), "r"(bytes)
               : "memory");
}
KVCAST_DEVICE void copy_commit() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }
template <int kGroupsLeft>
KVCAST_DEVICE void copy_wait() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kGroupsLeft) : "memory");
}

// Four 8×8 matrices of halves: lane l points at row l % 8 of matrix l / 8.
KVCAST_DEVICE void load_matrices(std::uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}
KVCAST_DEVICE void load_matrices_transposed(std::uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}
// c (16×8, float) += a (16×16, half, by rows) · b (16×8, half, by columns).
KVCAST_DEVICE void multiply_add(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
