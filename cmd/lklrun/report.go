// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/run/usage"
)

// reportTo writes the costs of a run to a comparison's descriptor.
func reportTo(fd int) func(usage.Report) {
	if fd < 0 {
		return nil
	}
	unix.CloseOnExec(fd)
	to := os.NewFile(uintptr(fd), "report"+strconv.Itoa(fd))
	return func(r usage.Report) {
		_ = json.NewEncoder(io.Writer(to)).Encode(r) // fails if the comparison has ended and so needs no report
		to.Close()
	}
}
