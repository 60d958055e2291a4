#include <immintrin.h>

#define KAKEYA_TWIN_KIND hardware
#include "twin/vnni_program.h"
