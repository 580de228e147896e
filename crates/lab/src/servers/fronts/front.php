<?php
// What a blocking PHP worker does: /backend calls the backend and waits, every other path does not.
//
// Settings are in settings.php, next to this file. Redis is spoken over a plain stream, MariaDB with
// mysqli. The cache is a file in memory with a lock: APCu is often not installed.

declare(strict_types=1);

/** A call of the backend that failed: the reason, and the status of the response. */
final class Failure extends Exception
{
    public function __construct(string $reason, public readonly int $status)
    {
        parent::__construct($reason);
    }
}

function failure(int $number): Failure
{
    return match ($number) {
        110 => new Failure('connect-timeout', 504),
        111 => new Failure('connect-refused', 502),
        104 => new Failure('reset', 502),
        99 => new Failure('local-ports', 502),
        default => new Failure("connect error $number", 502),
    };
}

/** Uses CPU for this time, µs. */
function work(int $us): void
{
    $used = function (): int {
        $usage = getrusage();
        return ($usage['ru_utime.tv_sec'] + $usage['ru_stime.tv_sec']) * 1000000
            + $usage['ru_utime.tv_usec'] + $usage['ru_stime.tv_usec'];
    };
    for ($begun = $used(); $us > 0 && $used() - $begun < $us;) {
    }
}

/** Asks Redis for the value; a persistent stream belongs to this process. */
function redis(array $s): string
{
    $flags = STREAM_CLIENT_CONNECT | ($s['pooled'] ? STREAM_CLIENT_PERSISTENT : 0);
    $stream = @stream_socket_client(
        'tcp://' . $s['backend'],
        $number,
        $text,
        $s['connect_us'] / 1e6,
        $flags
    );
    if ($stream === false) {
        throw failure($number);
    }
    try {
        $value = answer($stream, $s);
    } catch (Failure $failure) {
        // Also a persistent one: a late answer must not meet the next question.
        fclose($stream);
        throw $failure;
    }
    if (!$s['pooled']) {
        fclose($stream);
    }
    return $value;
}

/** One question and its answer. */
function answer($stream, array $s): string
{
    stream_set_timeout($stream, intdiv($s['answer_us'], 1000000), $s['answer_us'] % 1000000);
    $ended = function () use ($stream): Failure {
        return stream_get_meta_data($stream)['timed_out']
            ? new Failure('answer-timeout', 504)
            : new Failure('closed', 502);
    };
    $question = "*2\r\n$3\r\nGET\r\n$" . strlen($s['key']) . "\r\n" . $s['key'] . "\r\n";
    if (@fwrite($stream, $question) !== strlen($question)) {
        throw $ended();
    }
    $line = @fgets($stream, 32);
    if ($line === false || $line === '') {
        throw $ended();
    }
    if (!preg_match('/^\$(\d{1,5})\r\n$/', $line, $found)) {
        throw new Failure('malformed', 502);
    }
    $length = (int) $found[1] + 2;
    $value = (string) @stream_get_contents($stream, $length);
    if (strlen($value) < $length) {
        throw $ended();
    }
    return substr($value, 0, -2);
}

/** Asks MariaDB; the time limits of mysqli are whole seconds. */
function mariadb(array $s): string
{
    mysqli_report(MYSQLI_REPORT_OFF);
    $link = mysqli_init();
    $link->options(MYSQLI_OPT_CONNECT_TIMEOUT, $s['connect_s']);
    $link->options(MYSQLI_OPT_READ_TIMEOUT, $s['answer_s']);
    $begun = hrtime(true);
    $ended = function () use ($begun, $s): Failure {
        return hrtime(true) - $begun >= $s['answer_s'] * 1000000000
            ? new Failure('answer-timeout', 504)
            : new Failure('closed', 502);
    };
    $host = ($s['pooled'] ? 'p:' : '') . $s['host'];
    if (!@$link->real_connect($host, 'tcptoll', '', '', $s['port'])) {
        $text = (string) $link->connect_error;
        throw match (true) {
            $link->connect_errno !== 2002 => $ended(),
            str_contains($text, 'timed out') => failure(110),
            str_contains($text, 'refused') => failure(111),
            str_contains($text, 'Cannot assign') => failure(99),
            default => failure(0),
        };
    }
    $result = @$link->query('SELECT 1');
    if ($result === false) {
        $failure = $ended();
        $link->close();
        throw $failure;
    }
    $value = (string) $result->fetch_row()[0];
    $result->free();
    // A persistent one goes back to the pool of this process.
    $link->close();
    return $value;
}

/** Pause before the next attempt, µs; null: there is none. As `Retries` of tcptoll's own front. */
function pause_us(array $s, int $failed): ?int
{
    if ($failed > $s['retries']) {
        return null;
    }
    $full = (int) min($s['backoff_us'] * 2 ** min($failed - 1, 40), $s['pause_max_us']);
    return $s['jitter'] && $full > 0 ? random_int(0, $full) : $full;
}

/** Calls the backend, and repeats what fails. */
function call(array $s): string
{
    for ($failed = 0;;) {
        try {
            return $s['kind'] === 'redis' ? redis($s) : mariadb($s);
        } catch (Failure $failure) {
            $pause = pause_us($s, ++$failed);
            if ($pause === null) {
                throw $failure;
            }
            usleep($pause);
        }
    }
}

/** Calls the backend, and keeps the value for all workers. */
function refresh(array $s): string
{
    $value = call($s);
    $file = __DIR__ . '/value';
    // Nobody ever reads half of it.
    file_put_contents("$file." . getmypid(), hrtime(true) . "\n" . $value);
    rename("$file." . getmypid(), $file);
    return $value;
}

/** The value, from the cache if there is one. */
function value(array $s): string
{
    if ($s['cache_us'] === null) {
        return call($s);
    }
    $kept = @file_get_contents(__DIR__ . '/value');
    if ($kept === false) {
        return refresh($s);
    }
    [$since, $old] = explode("\n", $kept, 2);
    if (hrtime(true) - (int) $since < $s['cache_us'] * 1000) {
        return $old;
    }
    // One worker refreshes; all others answer the expired value until that has succeeded.
    $lock = fopen(__DIR__ . '/lock', 'c');
    if (!flock($lock, LOCK_EX | LOCK_NB)) {
        return $old;
    }
    try {
        return refresh($s);
    } catch (Failure) {
        return $old;
    } finally {
        fclose($lock);
    }
}

$settings = require __DIR__ . '/settings.php';
header('Content-Type: text/plain');
work($settings['work_us']);
if ($_SERVER['DOCUMENT_URI'] !== $settings['path']) {
    echo "local\n";
    return;
}
try {
    echo value($settings), "\n";
} catch (Failure $failure) {
    http_response_code($failure->status);
    echo $failure->getMessage(), "\n";
}
