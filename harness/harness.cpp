// Placeholder translation unit until the first harness source lands.
