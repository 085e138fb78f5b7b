/* A library that is loaded from the buffer. */
int answer(void) { return 42; }
