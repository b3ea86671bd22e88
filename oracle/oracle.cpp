#include "oracle/oracle.h"
