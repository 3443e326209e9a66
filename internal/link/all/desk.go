// SPDX-License-Identifier: Apache-2.0

//go:build !device

package all

import _ "github.com/lklrun/lklrun/internal/link/clat" // a bundle for a device has no room for it
