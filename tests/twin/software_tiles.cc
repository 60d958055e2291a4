#include <immintrin.h>

#include "twin/tile_macros.h"
#define KAKEYA_TWIN_KIND software
#include "twin/tile_program.h"
