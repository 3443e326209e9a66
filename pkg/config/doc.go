// SPDX-License-Identifier: Apache-2.0

// Package config holds the user's configuration of a run (interfaces, kernel
// settings, sizes) as plain data. It reads this data from a file of JSON with
// comments, the environment, flags, profiles, and the configuration of LKL's own
// hijack library.
//
// # Reading
//
// Load merges all sources. The resulting Config contains the Run and the origin of
// each value. ParseFile and Resolve do the same for data from other sources.
// ParseInterface and similar functions parse single values. An error is one line
// that names the place, the invalid part and the expected form.
//
// # Interface types
//
// This package does not define interface types. Drivers register them with
// RegisterType, as image formats do with the package image. A program that reads
// interfaces needs a blank import:
//
//	import (
//		"github.com/lklrun/lklrun/pkg/config"
//		_ "github.com/lklrun/lklrun/pkg/config/types"
//	)
//
// # Writing
//
// The String methods return the forms that the parsers read. Run and Interface can
// also be marshalled as JSON. Schema returns the JSON Schema of a configuration
// file, and Settings the list of all settings.
//
// # Tables
//
// Each fact about a setting is in one table (settings.go, keys.go, and the
// registered types). The readers, the JSON Schema, the help and
// docs/reference/configuration.md are derived from these tables.
package config
