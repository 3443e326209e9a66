// SPDX-License-Identifier: Apache-2.0

// Package oci contains the tests of lklrun-oci, the OCI runtime that gives containers a
// stack. test/docs runs the commands of its page.
package oci

import (
	"testing"
	"time"

	"github.com/lklrun/lklrun/test/kit"
)

const limit = 5 * time.Minute

func TestMain(m *testing.M) { kit.EndToEnd(m) }
