/* SPDX-License-Identifier: GPL-2.0-only */
/* For tests: features that the host's kernel is to lack. */
#ifndef LKLHOST_FEATURES_H
#define LKLHOST_FEATURES_H

#include <stdbool.h>

bool feature_hidden(const char *feature);

#endif
