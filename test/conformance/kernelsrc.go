// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// The kernel's tests are compiled from the tarball of this package; the repository has
// no copy.
const kernelTar = "/usr/src/linux-source-6.12.tar.xz"

// kernelTests extracts tools/testing/selftests/net, once, and returns its directory.
func kernelTests(ctx context.Context, o options) (string, error) {
	const top = "linux-source-6.12/"
	dir := filepath.Join(o.cache, "kernel")
	net := filepath.Join(dir, "tools", "testing", "selftests", "net")
	stamp := filepath.Join(dir, ".complete")
	if _, err := os.Stat(stamp); err == nil {
		return net, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	_, err := output(ctx, dir, nil, "tar", "-x", "-f", kernelTar, "--strip-components=1",
		top+"tools/testing/selftests/net", top+"tools/testing/selftests/kselftest.h",
		top+"tools/testing/selftests/kselftest_harness.h")
	if err != nil {
		return "", fmt.Errorf("extracting the kernel's tests, from the package linux-source-6.12: %w", err)
	}
	return net, os.WriteFile(stamp, nil, 0o644)
}

// buildKernelTest compiles one of the programs and returns its path.
func buildKernelTest(ctx context.Context, o options, net, source string) (string, error) {
	out := filepath.Join(o.cache, "kernel", "bin", filepath.Base(source))
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return "", err
	}
	// Define a constant of include/uapi/linux/net_tstamp.h that the C library's headers
	// do not have yet.
	_, err := output(ctx, net, nil, "gcc", "-O1", "-w", "-D_GNU_SOURCE=", "-DSOF_TIMESTAMPING_OPT_RX_FILTER=(1<<17)",
		"-I.", "-I..", "-o", out, source+".c", "-lpthread")
	return out, err
}
