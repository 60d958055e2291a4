#include <immintrin.h>

#define KAKEYA_TWIN_KIND hardware
#include "twin/tile_program.h"
