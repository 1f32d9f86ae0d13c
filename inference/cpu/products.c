/* The products of `matrix.h`, as one piece for the compiler. */
#include "many_rows.c"
#include "one_row.c"
