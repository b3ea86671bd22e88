// The `lockstep` command line.
int main() { return 2; }
