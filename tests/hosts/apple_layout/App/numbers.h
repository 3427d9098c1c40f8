void fill_numbers(float* numbers, int count, float step);
