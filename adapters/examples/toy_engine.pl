#!/usr/bin/env perl
# An engine in Perl behind the engine protocol (docs/judge-your-engine.md), without a library: the running mean of a document's
# embeddings predicts the next token. Weights are its own; SGD. Nothing but Perl's own modules.
#
#   lockstep verify --engine 'perl adapters/examples/toy_engine.pl' FILE
#   ... 'perl adapters/examples/toy_engine.pl --leak'       the mean goes on into the next document: R6 finds it
#   ... 'perl adapters/examples/toy_engine.pl --overwrite'  a microbatch overwrites the gradients of the one before: R11 finds it
use strict;
use warnings;
use Digest::SHA qw(sha256_hex);
use IO::Handle;
use JSON::PP;

my %bug = map { $_ => 1 } @ARGV;
my $json = JSON::PP->new->canonical;
my ($read, $write) = split /,/, $ENV{LOCKSTEP_ENGINE_FDS} // die "started by lockstep: --engine 'CMD'\n";
open(my $in, '<&=', $read) or die "no descriptor to read: $!";
open(my $out, '>&=', $write) or die "no descriptor to write: $!";
$out->autoflush(1);

# ---- Tensors: {dtype, shape, values}; files of section 3 ---------------------------------------------------------------------
my %code = (F32 => 'f<*', F64 => 'd<*', I32 => 'l<*', I64 => 'q<*');
my %size = (F32 => 4, F64 => 8, I32 => 4, I64 => 8);

sub read_tensors {
  my ($path) = @_;
  open(my $file, '<:raw', $path) or die "$path: $!";
  my $bytes = do { local $/; <$file> };
  my $length = unpack('Q<', $bytes);
  my $header = $json->decode(substr($bytes, 8, $length));
  my %values;
  for my $name (grep { $_ ne '__metadata__' } keys %$header) {
    my ($begin, $end) = @{$header->{$name}{data_offsets}};
    $values{$name} = [unpack($code{$header->{$name}{dtype}}, substr($bytes, 8 + $length + $begin, $end - $begin))];
  }
  return \%values;
}

sub packed { return pack('d<*', map { $_ == 0 ? 0.0 : $_ } @_) }  # -0 becomes +0.

sub write_tensors {
  my ($path, $tensors) = @_;
  my ($data, %header) = ('');
  for my $key (sort keys %$tensors) {
    my $bytes = pack('d<*', @{$tensors->{$key}{values}});
    $header{$key} = {dtype => 'F64', shape => $tensors->{$key}{shape}, data_offsets => [length($data), length($data) + length($bytes)]};
    $data .= $bytes;
  }
  my $header = $json->encode(\%header);
  $header .= ' ' x (-length($header) % 8);
  open(my $file, '>:raw', $path) or die "$path: $!";
  print $file pack('Q<', length $header), $header, $data;
  close $file;
}

# ---- The model: embedding [V, d], head [V, d], both F64 ------------------------------------------------------------------------
sub new_weights {
  my ($vocab, $width) = @_;
  my ($seed, %weights) = (1);
  for my $name ('embedding', 'head') {
    $weights{$name} = [map { $seed = ($seed * 1103515245 + 12345) % 2147483648; $seed / 1073741824 - 1 } 1 .. $vocab * $width];
  }
  return \%weights;
}

# Losses of all rows; adds to the gradients. A row's state is the mean of its document's embeddings up to it.
sub forward_backward {
  my ($w, $g, $vocab, $width, $rows, $tokens, $targets, $scale) = @_;
  my @losses = (0.0) x @$tokens;
  my @sum = (0.0) x $width;
  my @counted;
  for my $document (@$rows) {
    if (!$bug{'--leak'}) { @sum = (0.0) x $width; @counted = () }
    for my $row ($document->[0] .. $document->[1] - 1) {
      push @counted, $tokens->[$row];
      $sum[$_] += $w->{embedding}[$tokens->[$row] * $width + $_] for 0 .. $width - 1;
      next if $targets->[$row] < 0;
      my @state = map { $_ / @counted } @sum;
      my (@power, $total);
      for my $v (0 .. $vocab - 1) {
        my $logit = 0;
        $logit += $w->{head}[$v * $width + $_] * $state[$_] for 0 .. $width - 1;
        $total += $power[$v] = exp($logit);
      }
      $losses[$row] = log($total / $power[$targets->[$row]]);
      my @back = (0.0) x $width;
      for my $v (0 .. $vocab - 1) {
        my $d = $scale * ($power[$v] / $total - ($v == $targets->[$row]));
        for (0 .. $width - 1) {
          $g->{head}[$v * $width + $_] += $d * $state[$_];
          $back[$_] += $d * $w->{head}[$v * $width + $_];
        }
      }
      for my $token (@counted) { $g->{embedding}[$token * $width + $_] += $back[$_] / @counted for 0 .. $width - 1 }
    }
  }
  return \@losses;
}

# ---- A run -----------------------------------------------------------------------------------------------------------------------
my %kept;  # The tensors that a dump asks for, by key.

sub entry {
  my ($kind, $name, $step, $microbatch, $shape, $values, $rows) = @_;
  my @counted = $rows ? map { @$values[$_->[0] .. $_->[1] - 1] } @$rows : @$values;
  my %entry = (kind => $kind, name => $name, step => 0 + $step, dtype => 'F64', shape => [map { 0 + $_ } @$shape],
               sha256 => sha256_hex(packed(@$values)), nan => 0 + grep({ $_ != $_ } @counted), nonzero => 0 + grep({ $_ != 0 } @counted));
  $entry{microbatch} = 0 + $microbatch if defined $microbatch;
  $entry{by_document} = [map { sha256_hex(packed(@$values[$_->[0] .. $_->[1] - 1])) } @$rows] if $rows;
  my $key = "$kind:$name\@$step" . (defined $microbatch ? ".$microbatch" : '');
  $kept{$key} = {shape => $entry{shape}, values => [@$values]} if exists $kept{$key};
  return \%entry;
}

sub run {
  my ($ask) = @_;
  my ($vocab, $width) = @{$ask->{scenario}{model}}{'vocab', 'hidden'};
  my $length = $ask->{scenario}{data}{pack_length};
  my $feed = read_tensors("$ask->{feed}/data.safetensors");
  my %wanted = map { $_ => 1 } @{$ask->{observe}};
  my $w = new_weights($vocab, $width);
  my (@tensors, @rows_of, %shape);
  my %count = (microbatches => 0, tokens => 0, targets => 0);
  $shape{$_} = [$vocab, $width] for keys %$w;
  for my $step (0 .. $ask->{scenario}{training}{steps} - 1) {
    my $g = {map { $_ => [(0.0) x @{$w->{$_}}] } keys %$w};
    for (my $p = 0; $p < @{$feed->{packs}}; $p += 5) {
      my ($phase, $at, $microbatch, $first, $documents) = @{$feed->{packs}}[$p .. $p + 4];
      next if $phase != 0 || $at != $step;
      my (@tokens, @targets, @rows);
      for my $d ($first .. $first + $documents - 1) {  # One after the other.
        my ($begin, $size) = @{$feed->{documents}}[3 * $d + 1, 3 * $d + 2];
        push @rows, [scalar @tokens, @tokens + $size];
        push @tokens, @{$feed->{tokens}}[$begin .. $begin + $size - 1];
        push @targets, @{$feed->{targets}}[$begin .. $begin + $size - 1];
      }
      $count{microbatches}++;
      $count{tokens} += @tokens;
      $count{targets} += grep { $_ >= 0 } @targets;
      push @tokens, (0) x ($length - @tokens);
      push @targets, (-1) x ($length - @targets);
      if ($bug{'--overwrite'}) { $g = {map { $_ => [(0.0) x @{$w->{$_}}] } keys %$w} }
      my $losses = forward_backward($w, $g, $vocab, $width, \@rows, \@tokens, \@targets, $feed->{loss_scale}[$step]);
      push @rows_of, {step => 0 + $step, microbatch => 0 + $microbatch, documents => \@rows};
      push @tensors, entry('token_loss', 'token_loss', $step, $microbatch, [$length], $losses, \@rows) if $wanted{token_loss};
    }
    push @tensors, map { entry('gradient', $_, $step, undef, $shape{$_}, $g->{$_}) } sort keys %$w if $wanted{gradient};
    for my $name (keys %$w) { $w->{$name}[$_] -= $feed->{learning_rate}[$step] * $g->{$name}[$_] for 0 .. $#{$w->{$name}} }
    push @tensors, map { entry('weight', $_, $step, undef, $shape{$_}, $w->{$_}) } sort keys %$w if $wanted{weight};
  }
  return {rows => \@rows_of, tensors => \@tensors, counters => \%count};
}

# ---- The dialogue ------------------------------------------------------------------------------------------------------------------
my %answer = (
  hello => sub {
    return {protocol => 1, engine => {name => 'toy-perl', version => '1'}, device => {kind => 'cpu'},
            honours => {numerics => ['fp32'], 'model.pattern' => {symbols => '-', max => 1}, 'model.hidden' => {min => 1, max => 16},
                        'model.vocab' => {min => 2, max => 64}, 'data.pack_length' => {max => 128}, 'training.microbatches' => JSON::PP::true,
                        map({ $_ => JSON::PP::true } 'feed.empty_documents', 'feed.empty_packs', 'feed.loss_scale', 'feed.learning_rate')},
            claims => {deterministic => JSON::PP::true}, observes => ['token_loss', 'gradient', 'weight'],
            counts => {microbatches => 'said', tokens => 'said', targets => 'said'}};
  },
  check => sub { return {ok => JSON::PP::true} },
  run => sub { return run($_[0]) },
  dump => sub {
    %kept = map { $_ => undef } @{$_[0]{tensors}};
    my $reply = run($_[0]);
    my %found = map { $_ => $kept{$_} } grep { defined $kept{$_} } keys %kept;
    %kept = ();
    write_tensors($_[0]{to}, \%found);
    return {%$reply, written => scalar keys %found};
  },
  reset => sub { return {ok => JSON::PP::true} },
  bye => sub { return {ok => JSON::PP::true} });

while (my $line = <$in>) {
  my $ask = $json->decode($line);
  my $reply = exists $answer{$ask->{op}} ? eval { $answer{$ask->{op}}->($ask) } : {unsupported => $ask->{op}};
  $reply = {failed => 'exception', what => substr("$@", 0, 1000)} if !$reply;
  print $out $json->encode({id => $ask->{id}, %$reply}), "\n";
  last if $ask->{op} eq 'bye';
}
