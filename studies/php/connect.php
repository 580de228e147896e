<?php
/*
 * Opens connections one after another and closes each immediately, as a program without a connection
 * pool does. Prints how long connect() took.
 *
 *     php connect.php HOST PORT [COUNT [PAUSE_EVERY PAUSE_SECONDS]]
 *
 * The client of the study `queue-overflow-2021` did the same. `tcptoll accept-queue --concurrency 1
 * --first-byte off` is the same loop in tcptoll. Exit status: 0 all connected, 1 some failed, 2 usage.
 */

/** Stops with a message about the arguments. */
function usage(string $problem): never
{
    fwrite(STDERR, "connect.php: $problem\n");
    fwrite(STDERR, "usage: php connect.php HOST PORT [COUNT [PAUSE_EVERY PAUSE_SECONDS]]\n");
    exit(2);
}

/** A whole number from 1 to a maximum. */
function whole(string $name, string $typed, int $most): int
{
    $range = ['options' => ['min_range' => 1, 'max_range' => $most]];
    $number = filter_var($typed, FILTER_VALIDATE_INT, $range);
    if ($number === false) {
        usage("$name $typed: write a whole number from 1 to $most");
    }
    return $number;
}

/** The time below which this share of the sorted times lies. */
function quantile(array $sorted, float $share): float
{
    return $sorted[(int) min(count($sorted) - 1, floor(count($sorted) * $share))];
}

if (!extension_loaded('sockets')) {
    usage('this PHP has no extension "sockets" (Debian: it is part of php-cli)');
}
if ($argc < 3 || $argc === 5 || $argc > 6) {
    usage('write a host and a port');
}
$host = $argv[1];
if (filter_var($host, FILTER_VALIDATE_IP) === false) {
    usage("HOST $host: write an IP address");
}
$family = str_contains($host, ':') ? AF_INET6 : AF_INET;
$port = whole('PORT', $argv[2], 65535);
$count = whole('COUNT', $argv[3] ?? '5000', 1000000);
$pauseEvery = isset($argv[4]) ? whole('PAUSE_EVERY', $argv[4], $count) : 0;
$pause = isset($argv[5]) ? (float) $argv[5] : 0.0;
if ($pause < 0.0 || $pause > 60.0) {
    usage('PAUSE_SECONDS: write a number from 0 to 60');
}

$times = [];
$failed = [];
$paused = 0.0;
$began = hrtime(true);
for ($opened = 0; $opened < $count; $opened++) {
    if ($pauseEvery > 0 && $opened > 0 && $opened % $pauseEvery === 0) {
        usleep((int) ($pause * 1e6));
        $paused += $pause;
    }
    $socket = socket_create($family, SOCK_STREAM, SOL_TCP);
    if ($socket === false) {
        $reason = socket_strerror(socket_last_error());
        $failed[$reason] = ($failed[$reason] ?? 0) + 1;
        continue;
    }
    $before = hrtime(true);
    if (@socket_connect($socket, $host, $port)) {
        $times[] = (hrtime(true) - $before) / 1e3;
    } else {
        $reason = socket_strerror(socket_last_error($socket));
        $failed[$reason] = ($failed[$reason] ?? 0) + 1;
    }
    socket_close($socket);
}
$elapsed = (hrtime(true) - $began) / 1e9 - $paused;

printf("%d of %d connected, %.3f s without pauses\n", count($times), $count, $elapsed);
if ($times !== []) {
    sort($times);
    // A SYN that nobody answers is retransmitted after 1 s (before Linux 3.1: 3 s).
    $waited = count(array_filter($times, fn (float $us): bool => $us >= 0.9e6));
    printf(
        "connect(): mean %.3f ms, median %.3f ms, p99 %.3f ms, max %.1f ms; %d waited for a retransmitted SYN\n",
        array_sum($times) / count($times) / 1e3,
        quantile($times, 0.5) / 1e3,
        quantile($times, 0.99) / 1e3,
        end($times) / 1e3,
        $waited
    );
}
foreach ($failed as $reason => $times_failed) {
    printf("%d failed: %s\n", $times_failed, $reason);
}
exit($failed === [] ? 0 : 1);
