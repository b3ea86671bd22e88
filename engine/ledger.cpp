#include "engine/ledger.h"
