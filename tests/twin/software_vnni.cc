#include <immintrin.h>

#include "twin/vnni_macros.h"
#define KAKEYA_TWIN_KIND software
#include "twin/vnni_program.h"
