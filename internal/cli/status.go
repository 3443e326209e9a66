// SPDX-License-Identifier: Apache-2.0

package cli

import "github.com/lklrun/lklrun/internal/base/exit"

// Names of package exit that lklrun still uses.
const (
	ExitFailure = exit.Failure
	ExitUsage   = exit.Usage
)

// UsageError is exit.UsageError.
type UsageError = exit.UsageError

// Usagef is exit.Usagef.
func Usagef(format string, args ...any) error { return exit.Usagef(format, args...) }
