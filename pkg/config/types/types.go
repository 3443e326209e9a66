// SPDX-License-Identifier: Apache-2.0

// Package types registers the interface types of lklrun with pkg/config, for
// programs that read its configuration:
//
//	import _ "github.com/lklrun/lklrun/pkg/config/types"
//
// The build tag nogateway excludes the implementation of the user-mode gateway from
// such a program.
package types

import _ "github.com/lklrun/lklrun/internal/link/all" // registers the interface types
