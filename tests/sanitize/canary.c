/* Faults on purpose: the tools must find each of them, or their silence about the kernels says nothing. */

#include <stdlib.h>

int beyond_the_end(int n)
{
    char *bytes = malloc(8);
    bytes[n + 1] = 1; /* n is 7 */
    int first = bytes[0];
    free(bytes);
    return first;
}

int undefined_shift(int n) { return -n << 3; }

void lost_memory(int n)
{
    char *volatile bytes = malloc((size_t)n);
    bytes[0] = 1;
    bytes = NULL;
}

int never_set(int n)
{
    int *number = malloc(sizeof(int));
    int found = *number > n ? 1 : 2;
    free(number);
    return found;
}
