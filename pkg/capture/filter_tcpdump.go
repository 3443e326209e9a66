// SPDX-License-Identifier: Apache-2.0

//go:build !cgo || nopcap

package capture

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/bpf"
)

// errNoCompiler is returned by a build without libpcap if tcpdump is missing.
var errNoCompiler = errors.New("compiling the filter requires tcpdump; install tcpdump, or remove the filter")

// compileLimit is the timeout of one run of tcpdump, which may resolve host names
// in the expression.
const compileLimit = 30 * time.Second

// compile makes tcpdump(8) print the program. With -ddd, tcpdump prints the number
// of instructions, and then each instruction as four decimal numbers.
func compile(expr string, lt LinkType, snaplen int) ([]bpf.RawInstruction, error) {
	tcpdump, err := exec.LookPath("tcpdump")
	if err != nil {
		return nil, errNoCompiler
	}
	ctx, cancel := context.WithTimeout(context.Background(), compileLimit)
	defer cancel()
	name := "EN10MB"
	if lt == LinkTypeRaw {
		name = "RAW"
	}
	cmd := exec.CommandContext(ctx, tcpdump, "-ddd", "-y", name, "-s", strconv.Itoa(snaplen), "--", expr)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		var ended *exec.ExitError
		if words := tcpdumpWords(errs.String()); errors.As(err, &ended) && words != "" {
			return nil, &FilterError{expr, words}
		}
		return nil, fmt.Errorf("compiling the filter with %s: %w", tcpdump, err)
	}
	prog, err := parseDDD(out.String())
	if err != nil {
		return nil, fmt.Errorf("compiling the filter with %s: %w", tcpdump, err)
	}
	return prog, nil
}

// tcpdumpWords returns tcpdump's last message, without its name.
func tcpdumpWords(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.TrimPrefix(lines[len(lines)-1], "tcpdump: ")
}

func parseDDD(text string) ([]bpf.RawInstruction, error) {
	var n int
	head, rest, _ := strings.Cut(text, "\n")
	if _, err := fmt.Sscanf(head, "%d", &n); err != nil || n < 1 || n > maxProgram {
		return nil, fmt.Errorf("%q is not a number of instructions", head)
	}
	prog := make([]bpf.RawInstruction, 0, n)
	for line := range strings.Lines(rest) {
		var i bpf.RawInstruction
		if _, err := fmt.Sscanf(line, "%d %d %d %d", &i.Op, &i.Jt, &i.Jf, &i.K); err != nil {
			return nil, fmt.Errorf("%q is not an instruction", strings.TrimSpace(line))
		}
		prog = append(prog, i)
	}
	if len(prog) != n {
		return nil, fmt.Errorf("%d instructions of %d", len(prog), n)
	}
	return prog, nil
}
