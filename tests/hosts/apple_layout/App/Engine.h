#ifdef __cplusplus
extern "C"
#endif
    int
    run_engine(const float* a, const float* b, int count);
